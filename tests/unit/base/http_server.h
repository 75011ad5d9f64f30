/*
 * http_server — an HTTP server for tests, in a thread, which answers as a test wants, also badly.
 *
 * It takes one connection after the other, reads a request, and calls `answer`, which writes any
 * bytes to the connection. The connection is closed then.
 */
#ifndef MUSTER_TESTS_UNIT_BASE_HTTP_SERVER_H
#define MUSTER_TESTS_UNIT_BASE_HTTP_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

enum { SERVER_REQUEST = 1 << 17 };

struct http_server {
	/* request: its headers and body as text */
	void (*answer)(void *arg, int fd, const char *request);
	void *arg;
	atomic_int requests; /* that were read */
	atomic_int
		unread; /* how many of the next connections are closed before the request is read */
	/* set by http_server_start() */
	int listener;
	char url[64];
	char socket[100]; /* "": it listens on a loopback port */
	pthread_t thread;
	char request[SERVER_REQUEST]; /* of the thread */
	pthread_mutex_t lock;
	char last[SERVER_REQUEST]; /* under the lock */
	char seen[SERVER_REQUEST]; /* of the test */
};

/* socket: the path to listen on; NULL: a loopback port. */
void http_server_start(struct http_server *s, const char *socket);
void http_server_stop(struct http_server *s);

/* The last request; valid until the next call. */
const char *http_server_last(struct http_server *s);

#endif
