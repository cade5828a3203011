import { describe, expect, it } from "vitest";
import { rangeOf } from "../../src/lib/index.ts";

/** As `new URL(…).hostname` writes them, and as a look-up does. */
const table: Readonly<Record<string, readonly string[]>> = {
  metadata: [
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "[fd00:ec2::254]",
    "fd00:ec2:0:0:0:0:0:254",
    "[::ffff:a9fe:a9fe]",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "::ffff:0:a9fe:a9fe",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "64:ff9b:1:a9fe:a9:fe00:808:808",
    "64:ff9b:1:ffa9:fe:a9fe:808:808",
    "64:ff9b:1:ffff:a9:fea9:fe08:808",
    "2002:a9fe:a9fe::1",
    "2001:0:1:2:3:4:5601:5601",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "metadata.goog",
  ],
  loopback: [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "[::1]",
    "::",
    "::ffff:127.0.0.1",
    "[::7f00:1]",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "localhost",
    "a.localhost.",
  ],
  private: [
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.127.255.255",
    "169.254.1.1",
    "192.0.2.1",
    "198.19.255.255",
    "224.0.0.1",
    "255.255.255.255",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "2002:c0a8:101::1",
  ],
  public: [
    "1.1.1.1",
    "172.32.0.1",
    "100.128.0.1",
    "192.169.0.1",
    "223.255.255.255",
    "2606:4700::1111",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
  ],
};

describe("rangeOf", () => {
  it.each(Object.entries(table).flatMap(([range, hosts]) => hosts.map((host) => [host, range])))(
    "L63 L64 %s is %s",
    (host, range) => {
      expect(rangeOf(host)).toBe(range);
    },
  );

  it.each([
    ["http://2852039166/", "metadata"],
    ["http://0xa9.0xfe.0xa9.0xfe/", "metadata"],
    ["http://0251.0376.0251.0376/", "metadata"],
    ["http://[0:0:0:0:0:ffff:169.254.169.254]/", "metadata"],
    ["http://127.1/", "loopback"],
    ["http://①②⑦.0.0.1/", "loopback"],
  ])("L63 sees through the spelling %s, as the URL parser does", (url, range) => {
    expect(rangeOf(new URL(url).hostname)).toBe(range);
  });

  it.each(["tickets.internal", "localhost.example.com", "169.254.169.254.example.com", "metadata", "", "1.2.3", "::g"])(
    "says nothing of %j",
    (host) => {
      expect(rangeOf(host)).toBeUndefined();
    },
  );
});
