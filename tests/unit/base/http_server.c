#include "tests/unit/base/http_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		abort();
	}
}

static size_t body_length(const char *headers)
{
	const char *at = strcasestr(headers, "\r\nContent-Length:");
	return at ? strtoul(at + 17, NULL, 10) : 0;
}

static void read_request(struct http_server *s, int fd)
{
	size_t len = 0, want = SIZE_MAX;
	ssize_t n;
	s->request[0] = '\0';
	/* A client of TLS begins with the byte 22 and waits for an answer. */
	while (len < want && s->request[0] != 22 && len + 1 < sizeof s->request &&
	       (n = read(fd, s->request + len, sizeof s->request - 1 - len)) > 0) {
		len += (size_t)n;
		s->request[len] = '\0';
		const char *end = strstr(s->request, "\r\n\r\n");
		if (end)
			want = (size_t)(end + 4 - s->request) + body_length(s->request);
	}
}

/* The client has sent at least a part of its request when its connection is closed. */
static bool leave_unread(struct http_server *s, int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	if (s->unread <= 0)
		return false;
	s->unread--;
	must(poll(&p, 1, 30000) == 1, "poll");
	close(fd);
	return true;
}

static void *serve(void *arg)
{
	struct http_server *s = arg;
	int fd;
	while ((fd = accept(s->listener, NULL, NULL)) >= 0) {
		if (leave_unread(s, fd))
			continue;
		read_request(s, fd);
		pthread_mutex_lock(&s->lock);
		strcpy(s->last, s->request);
		pthread_mutex_unlock(&s->lock);
		s->requests++;
		s->answer(s->arg, fd, s->request);
		close(fd);
	}
	return NULL;
}

static int listen_on_port(struct http_server *s)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(fd >= 0 && !bind(fd, (struct sockaddr *)&a, len), "bind");
	must(!getsockname(fd, (struct sockaddr *)&a, &len), "getsockname");
	snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", ntohs(a.sin_port));
	return fd;
}

static int listen_on_socket(struct http_server *s, const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	unlink(path);
	must(fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a), "bind");
	snprintf(s->socket, sizeof s->socket, "%s", path);
	strcpy(s->url, "http://localhost");
	return fd;
}

void http_server_start(struct http_server *s, const char *path)
{
	s->requests = 0;
	s->unread = 0;
	s->last[0] = '\0';
	pthread_mutex_init(&s->lock, NULL);
	s->socket[0] = '\0';
	s->listener = path ? listen_on_socket(s, path) : listen_on_port(s);
	must(!listen(s->listener, 8), "listen");
	must(!pthread_create(&s->thread, NULL, serve, s), "thread");
}

void http_server_stop(struct http_server *s)
{
	shutdown(s->listener, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->listener);
	if (s->socket[0])
		unlink(s->socket);
}

const char *http_server_last(struct http_server *s)
{
	pthread_mutex_lock(&s->lock);
	strcpy(s->seen, s->last);
	pthread_mutex_unlock(&s->lock);
	return s->seen;
}
