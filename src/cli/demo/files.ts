/** The three files as the demo writes them; `postern check` accepts each. */

export function relayYaml(values: { publicUrl: string; port: number; tunnelHash: string; agentHash: string }): string {
  return `listen: "127.0.0.1:${values.port}"
publicUrl: ${values.publicUrl}
admin: { listen: "127.0.0.1:0" }
tunnels:
  demo:
    gateways:
      - { name: laptop, tokenSha256: ["${values.tunnelHash}"] }
    agents:
      - { name: demo-agent, keySha256: ["${values.agentHash}"], servers: [tickets] }
`;
}

export function gatewayYaml(values: { port: number; storeAddress: string; serverUrl: string }): string {
  return `relay:
  url: ws://127.0.0.1:${values.port}
  tunnel: demo
  token: { file: ./tunnel-token }
vault:
  address: ${values.storeAddress}
  auth: { method: token, token: { file: ./store-token } }
servers:
  tickets:
    url: ${values.serverUrl}
    credential:
      type: bearer
      token: { vault: { mount: secret, path: mcp/tickets, field: token } }
policy: ./policy.yaml
admin: { listen: "127.0.0.1:0" }
audit: { file: ./audit.jsonl }
`;
}

export const policyYaml = `version: 1
servers:
  tickets:
    tools:
      - search_issues
      - get_*
`;
