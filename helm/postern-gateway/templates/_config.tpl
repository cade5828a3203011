{{- /* gateway.yaml: what the user wrote, with the three entries that only the chart knows. */ -}}
{{- define "postern.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config.relay "token" (dict "file" "/run/secrets/postern/tunnel-token") -}}
{{- $_ := set $config "policy" "./policy.yaml" -}}
{{- $_ := set $config "admin" (dict "listen" "0.0.0.0:9464") -}}
{{- with .Values.adminToken }}{{ $_ := set $config.admin "token" . }}{{ end -}}
{{- with ($config.audit).file -}}
{{- if not (and $.Values.auditVolume (hasPrefix "/var/log/postern/" .)) -}}
{{- fail "config.audit.file must lie in /var/log/postern, with an auditVolume: the rest of the container is read-only" -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- /* The port of a URL, by its scheme where it names none. */ -}}
{{- define "postern.urlPort" -}}
{{- $url := urlParse . -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $port | default (ternary "443" "80" (has $url.scheme (list "https" "wss"))) -}}
{{- end -}}

{{- /* Every port that the gateway dials, each once. */ -}}
{{- define "postern.egressPorts" -}}
{{- $urls := list .Values.config.relay.url -}}
{{- with .Values.config.vault }}{{ $urls = append $urls .address }}{{ end -}}
{{- range .Values.config.servers }}{{ with .url }}{{ $urls = append $urls . }}{{ end }}{{ end -}}
{{- $ports := list -}}
{{- /* Issuers' keys and tokens are fetched over HTTPS. */ -}}
{{- if regexMatch "\"(issuer|jwks|tokenEndpoint)\":|\"githubApp\"" (toJson .Values.config) }}{{ $ports = append $ports "443" }}{{ end -}}
{{- range $urls }}{{ $ports = append $ports (include "postern.urlPort" .) }}{{ end -}}
{{- range $ports | uniq | sortAlpha }}
- { protocol: TCP, port: {{ . }} }
{{- end -}}
{{- end -}}
