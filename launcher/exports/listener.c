/* listener: the numbers of a run over HTTP, for Prometheus ([metrics] listen).
 *
 * libmicrohttpd serves from a thread of its own what the loop has handed over last. The two share
 * two texts and a mutex, which the loop never waits for. */
#include "base/buf.h"
#include "base/net.h"
#include "base/thread.h"
#include "launcher/exports/export_ops.h"
#include "launcher/exports/gauges.h"
#include "launcher/exports/microhttpd.h"
#include "launcher/exports/token.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A scrape is one short request, so little is enough for many scrapers and little for a stranger. */
enum { CONNECTIONS = 32, CONNECTIONS_PER_ADDRESS = 8, PATIENCE_S = 10, HEADERS = 16 << 10 };

struct listener {
	const struct microhttpd *http;
	struct MHD_Daemon *daemon;
	char token[EXPORTS_TOKEN]; /* "": none is required */
	pthread_mutex_t mutex;
	struct buf text[2]; /* by enum export_format */
};

static const char *const content_types[] = {
	[FORMAT_PROMETHEUS] = "text/plain; version=0.0.4; charset=utf-8",
	[FORMAT_OPEN_METRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8",
};

/* --- Answers, in the thread of the library ---------------------------------------------- */

/* Steals the response. */
static enum MHD_Result answer(const struct listener *l, struct MHD_Connection *c, unsigned status,
			      const char *type, struct MHD_Response *r)
{
	if (!r)
		return MHD_NO;
	l->http->add_header(r, "Content-Type", type);
	l->http->add_header(r, "Cache-Control", "no-store");
	if (status == MHD_HTTP_UNAUTHORIZED)
		l->http->add_header(r, "WWW-Authenticate", "Bearer realm=\"muster\"");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		l->http->add_header(r, "Allow", "GET, HEAD");
	enum MHD_Result rc = l->http->queue(c, status, r);
	l->http->destroy(r);
	return rc;
}

static enum MHD_Result refuse(const struct listener *l, struct MHD_Connection *c, unsigned status,
			      const char *text)
{
	char copy[100];
	snprintf(copy, sizeof copy, "%s\n", text);
	return answer(l, c, status, "text/plain; charset=utf-8",
		      l->http->response(strlen(copy), copy, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result serve(struct listener *l, struct MHD_Connection *c)
{
	const char *accepts = l->http->lookup(c, MHD_HEADER_KIND, "Accept");
	enum export_format format = accepts && strstr(accepts, "application/openmetrics-text")
					    ? FORMAT_OPEN_METRICS
					    : FORMAT_PROMETHEUS;
	pthread_mutex_lock(&l->mutex);
	struct buf *text = &l->text[format];
	bool known = text->len > 0;
	struct MHD_Response *r =
		known ? l->http->response(text->len, text->data, MHD_RESPMEM_MUST_COPY) : NULL;
	pthread_mutex_unlock(&l->mutex);
	if (!known)
		return refuse(l, c, MHD_HTTP_SERVICE_UNAVAILABLE, "the run has just started");
	return answer(l, c, MHD_HTTP_OK, content_types[format], r);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *n_data, void **state)
{
	struct listener *l = arg;
	(void)version, (void)data, (void)state;
	*n_data = 0;
	if (*l->token &&
	    !exports_token_matches(l->token, l->http->lookup(c, MHD_HEADER_KIND, "Authorization")))
		return refuse(l, c, MHD_HTTP_UNAUTHORIZED, "a token is required");
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return refuse(l, c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is answered");
	if (strcmp(url, "/metrics"))
		return refuse(l, c, MHD_HTTP_NOT_FOUND, "the numbers are at /metrics");
	return serve(l, c);
}

/* --- The export --------------------------------------------------------------------------- */

static bool is_wanted(const struct job *job)
{
	return *job->metrics.listen;
}

/* The library may close the descriptor that it gets even if it fails: it gets a copy. */
static int start(struct listener *l, int fd, struct err *e)
{
	sigset_t before;
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	thread_block_signals(&before);
	l->daemon = copy < 0 ? NULL
			     : l->http->start(MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL,
					      on_request, l, MHD_OPTION_LISTEN_SOCKET, copy,
					      MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
					      MHD_OPTION_PER_IP_CONNECTION_LIMIT,
					      (unsigned)CONNECTIONS_PER_ADDRESS,
					      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)PATIENCE_S,
					      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADERS,
					      MHD_OPTION_END);
	thread_restore_signals(&before);
	if (l->daemon)
		return 0;
	shutdown(fd, SHUT_RDWR);
	return err_set(
		e, ERR_NOMEM,
		"cannot start the thread that answers; ulimit -u and ulimit -n limit threads "
		"and open files");
}

static void say_where(const struct exports_options *o, const char *bound)
{
	char text[NET_ADDR_MAX + 32];
	snprintf(text, sizeof text, "http://%s/metrics", bound);
	o->tell(o->arg, false, text);
}

/* Adds to the error of net_listen_at() what the job can do about it. */
static int advise(struct err *e)
{
	const struct err why = *e;
	return err_set(e, why.code, "%.700s; %s", why.text,
		       why.code == ERR_DENIED
			       ? "listen on one that may be reached, and set metrics.token_file "
				 "or " EXPORTS_TOKEN_VARIABLE
			       : "choose another port, or 0 for a free one, of an address of this "
				 "host");
}

static int listener_open(const struct exports_options *o, void **x, struct err *e)
{
	char bound[NET_ADDR_MAX];
	struct listener *l = calloc(1, sizeof *l);
	int fd = -1;
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory to listen");
	l->http = exports_microhttpd(e);
	if (!l->http || exports_token_read(o->job->metrics.token_file, l->token, e))
		goto free_listener;
	if (net_listen_at(o->job->metrics.listen, !*l->token, &fd, bound, e)) {
		advise(e);
		goto free_listener;
	}
	pthread_mutex_init(&l->mutex, NULL);
	if (start(l, fd, e))
		goto close_socket;
	close(fd);
	say_where(o, bound);
	*x = l;
	return 0;

close_socket:
	close(fd);
	pthread_mutex_destroy(&l->mutex);
free_listener:
	explicit_bzero(l->token, sizeof l->token);
	free(l);
	return -1;
}

static bool listener_text(void *x, const struct buf *prometheus, const struct buf *open_metrics)
{
	struct listener *l = x;
	struct buf next[2] = { BUF_INIT, BUF_INIT }, last[2];
	buf_add(&next[FORMAT_PROMETHEUS], prometheus->data, prometheus->len);
	buf_add(&next[FORMAT_OPEN_METRICS], open_metrics->data, open_metrics->len);
	bool taken = !buf_failed(&next[0]) && !buf_failed(&next[1]) &&
		     !pthread_mutex_trylock(&l->mutex);
	memcpy(last, taken ? l->text : next, sizeof last);
	if (taken) {
		memcpy(l->text, next, sizeof next);
		pthread_mutex_unlock(&l->mutex);
	}
	buf_fini(&last[0]);
	buf_fini(&last[1]);
	return taken;
}

static void listener_close(void *x, enum rundir_state_id state)
{
	struct listener *l = x;
	(void)state;
	l->http->stop(l->daemon);
	pthread_mutex_destroy(&l->mutex);
	buf_fini(&l->text[0]);
	buf_fini(&l->text[1]);
	explicit_bzero(l->token, sizeof l->token);
	free(l);
}

const struct export_ops exports_listener = {
	.key = "metrics.listen",
	.is_wanted = is_wanted,
	.open = listener_open,
	.close = listener_close,
	.text = listener_text,
	.text_s = 1,
};
