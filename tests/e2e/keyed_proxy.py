"""A proxy that adds a key to every request and changes nothing else, for clients that know no keys."""
import socket
import threading


class KeyedProxy:
    """Listens on .url; forwards bytes to (host, port)."""

    def __init__(self, host, port, key):
        self.to, self.line = (host, port), f"Authorization: Bearer {key}\r\n".encode()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.door.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.door.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, socket.create_connection(self.to) as server:
            threading.Thread(target=self._pump, args=(server, client), daemon=True).start()
            try:
                self._requests(client, server)
            except OSError:
                pass
            finally:
                for end in (server, client):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

    def _requests(self, client, server):
        reader = client.makefile("rb")
        while first := reader.readline():
            length, head = 0, [first, self.line]
            while (line := reader.readline()) not in (b"\r\n", b""):
                head.append(line)
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            server.sendall(b"".join(head) + b"\r\n" + reader.read(length))

    @staticmethod
    def _pump(server, client):
        try:
            while data := server.recv(65536):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
