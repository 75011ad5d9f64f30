/*
 * through_proxy — preloaded into muster with LD_PRELOAD, it routes every TCP connection of a
 * process through tests/tools/fault_proxy, which listens at the Unix socket that TEST_PROXY names.
 *
 * connect() asks the proxy for a port that leads to the wanted address, and connects there. The
 * proxy tries the address first. If nobody listens there, it answers with port 0; the original call
 * is then made and fails as it would without the proxy. It supports only IPv4, which one host uses.
 */
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int (*real_connect(void))(int, const struct sockaddr *, socklen_t)
{
	int (*fn)(int, const struct sockaddr *, socklen_t);
	*(void **)&fn = dlsym(RTLD_NEXT, "connect");
	return fn;
}

/* The port that leads to `to`, in network order; 0: none. */
static in_port_t ask_proxy(const char *path, const struct sockaddr_in *to)
{
	struct sockaddr_un proxy = { .sun_family = AF_UNIX };
	in_port_t port = 0;
	if (strlen(path) >= sizeof proxy.sun_path)
		return 0;
	strcpy(proxy.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || real_connect()(fd, (struct sockaddr *)&proxy, sizeof proxy) ||
	    write(fd, to, sizeof *to) != sizeof *to || read(fd, &port, sizeof port) != sizeof port)
		port = 0;
	if (fd >= 0)
		close(fd);
	return port;
}

int connect(int fd, const struct sockaddr *to, socklen_t len)
{
	const char *path = getenv("TEST_PROXY");
	int type = 0;
	socklen_t n = sizeof type;
	if (path && len >= sizeof(struct sockaddr_in) && to->sa_family == AF_INET &&
	    !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) && type == SOCK_STREAM) {
		struct sockaddr_in there;
		memcpy(&there, to, sizeof there);
		in_port_t port = ask_proxy(path, &there);
		struct sockaddr_in here = { .sin_family = AF_INET,
					    .sin_port = port,
					    .sin_addr = { htonl(INADDR_LOOPBACK) } };
		if (port)
			return real_connect()(fd, (struct sockaddr *)&here, sizeof here);
	}
	return real_connect()(fd, to, len);
}
