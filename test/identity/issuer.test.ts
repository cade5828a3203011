import { expect, it } from "vitest";
import { isSafeAddress } from "../../src/identity/issuer.ts";

it.each([
  ["https://idp.example.com", "https://idp.example.com/keys", true],
  ["https://idp.example.com", "https://keys.example.net/keys", true],
  ["https://idp.example.com", "http://idp.example.com/keys", false],
  ["https://idp.example.com", "http://127.0.0.1/keys", false],
  ["https://idp.example.com", "https://127.0.0.1/keys", false],
  ["https://idp.example.com", "https://localhost:8200/v1/sys", false],
  ["https://idp.example.com", "https://[::1]/keys", false],
  ["https://idp.example.com", "https://0x7f.1/keys", false],
  ["https://idp.example.com", "https://[::ffff:127.0.0.1]/keys", false],
  ["https://idp.example.com", "https://[::127.0.0.1]/keys", false],
  ["https://idp.example.com", "https://[::]/keys", false],
  ["https://idp.example.com", "https://0.0.0.0:8200/keys", false],
  ["https://idp.example.com", "https://localhost./keys", false],
  ["https://idp.example.com", "https://vault.localhost/keys", false],
  ["https://idp.example.com", "https://notlocalhost/keys", true],
  ["https://idp.example.com", "https://[2001:db8::1]/keys", true],
  ["http://127.0.0.1:8080", "http://0.0.0.0/keys", false],
  ["https://idp.example.com", "https://user:word@idp.example.com/keys", false],
  ["https://idp.example.com", "file:///etc/passwd", false],
  ["https://idp.example.com", "/keys", false],
  ["http://127.0.0.1:8080", "http://127.0.0.1:9090/keys", true],
  ["http://127.0.0.1:8080", "http://localhost/keys", true],
  ["http://127.0.0.1:8080", "http://10.0.0.1/keys", false],
  ["http://127.0.0.1:8080", "http://127.0.0.1.example.com/keys", false],
])("on the word of %s, %s may be dialled: %s", (issuer, url, isSafe) => {
  expect(isSafeAddress(url, issuer)).toBe(isSafe);
});
