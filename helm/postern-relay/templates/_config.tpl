{{- /* relay.yaml: what the user wrote, with the two addresses that the container's ports repeat. */ -}}
{{- define "postern.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "listen" "0.0.0.0:8080" -}}
{{- $_ := set $config "admin" (dict "listen" "0.0.0.0:9465") -}}
{{- with .Values.adminToken }}{{ $_ := set $config.admin "token" . }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}
