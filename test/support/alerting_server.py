"""An HTTPS server on OpenSSL itself, for Node's own closes without a TLS alert when it refuses a client's certificate.

Arguments: certificate, key, and the CA of clients, which is read for each connection. Prints its port, then the alerts it
sent and the requests it took, a word for each. One request for each connection.
"""

import socket
import ssl
import sys


def read_request(conn):
    text = b""
    while b"\r\n\r\n" not in text:
        chunk = conn.recv(65536)
        if not chunk:
            return None
        text += chunk
    head, body = text.split(b"\r\n\r\n", 1)
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += conn.recv(65536)
    return body


def serve(raw, cert, key, ca):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        conn = context.wrap_socket(raw, server_side=True)
    except ssl.SSLError:
        print("alert", flush=True)
        return
    if read_request(conn) is not None:
        print("request", flush=True)
        body = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        conn.sendall(head % len(body) + body)
    conn.close()


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    raw, _ = listener.accept()
    try:
        serve(raw, *sys.argv[1:4])
    except OSError as error:
        print("error", error.__class__.__name__, flush=True)
    finally:
        raw.close()
