/* post: delivers notifications by HTTP. */
#include "base/clock.h"
#include "base/http/pump.h"
#include "launcher/notify/outlet.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 1 << 16, RETRY_AFTER_MOST_S = 300 };

static const double connect_s = 10, total_s = 20, look_s = 0.1;

struct post {
	char *url, *authorization, *ca_file;
	bool slack;
	struct http_pump *pump; /* NULL: nothing was sent yet */
};

static void wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

static void close_post(void *way)
{
	struct post *p = way;
	http_pump_close(p->pump);
	wipe(p->url);
	wipe(p->authorization);
	free(p->ca_file);
	free(p);
}

static bool is_cut(int cut)
{
	struct pollfd fd = { .fd = cut, .events = POLLIN };
	return poll(&fd, 1, 0) > 0;
}

/* Whether the same request may succeed later. */
static bool may_pass(enum err_code code)
{
	return code == ERR_NET || code == ERR_TIMEOUT || code == ERR_NOTFOUND || code == ERR_PROTO;
}

/* The host of the address, for errors. */
static void show_host(const char *url, char *out, size_t size)
{
	size_t scheme = strcspn(url, ":") + 3;
	snprintf(out, size, "%.*s", (int)(scheme + strcspn(url + scheme, "/?#")), url);
}

static int judge(const struct post *p, const struct http_answer *a, double *again_s, struct err *e)
{
	char host[200], after[16];
	int status = a->status;
	if (status >= 200 && status < 300)
		return 0;
	show_host(p->url, host, sizeof host);
	if (status != 408 && status != 429 && status < 500) {
		*again_s = -1;
		return err_set(e, ERR_PROTO, "%s: it answers with status %d; %s", host, status,
			       status < 400 ? "redirects are not followed, so correct the address"
			       : status == 401 || status == 403
				       ? "correct the token, or the address"
				       : "correct the address or the preset");
	}
	if (http_answer_header(a, "Retry-After", after, sizeof after)) {
		double wait = strtod(after, NULL);
		*again_s = wait > 0 && wait < RETRY_AFTER_MOST_S ? wait : 0;
	}
	return err_set(e, ERR_NET, "%s: it answers with status %d", host, status);
}

/* Sends the request; `cut` ends it. */
static int transfer(struct post *p, const struct http_request *r, int cut, double *again_s,
		    struct err *e)
{
	struct http_landed landed;
	if (!p->pump && http_pump_open(&p->pump, e))
		return -1;
	if (http_pump_start(p->pump, r, p, e))
		return -1;
	while (!http_pump_next(p->pump, look_s, &landed))
		if (is_cut(cut)) {
			char host[200];
			http_pump_cut(p->pump, p);
			show_host(p->url, host, sizeof host);
			return err_set(e, ERR_TIMEOUT, "%s: it has not answered in time", host);
		}
	if (landed.rc) {
		*e = landed.err;
		*again_s = may_pass(landed.err.code) ? 0 : -1;
		return -1;
	}
	int rc = judge(p, &landed.answer, again_s, e);
	http_answer_free(&landed.answer);
	return rc;
}

static int deliver(void *way, const json_t *message, int cut, double *again_s, struct err *e)
{
	struct post *p = way;
	char *body = notify_body(message, p->slack);
	const struct http_header header = { "Authorization", p->authorization, true };
	const struct http_request r = {
		.method = "POST",
		.url = p->url,
		.secret_url = true,
		.ca_file = p->ca_file,
		.headers = &header,
		.n_headers = p->authorization != NULL,
		.body = body,
		.content_type = "application/json",
		.connect_s = connect_s,
		.total_s = total_s,
		.most = ANSWER_MAX,
	};
	int rc = body ? transfer(p, &r, cut, again_s, e)
		      : err_set(e, ERR_NOMEM, "no memory for a notification");
	free(body);
	return rc;
}

int notify_post_open(const char *url, const char *token, const char *ca_file, bool slack,
		     struct outlet_way *out, struct err *e)
{
	struct post *p = calloc(1, sizeof *p);
	if (!p)
		return err_set(e, ERR_NOMEM, "no memory to send notifications");
	p->slack = slack;
	p->url = strdup(url);
	p->ca_file = *ca_file ? strdup(ca_file) : NULL;
	if (*token && asprintf(&p->authorization, "Bearer %s", token) < 0)
		p->authorization = NULL;
	if (!p->url || (*ca_file && !p->ca_file) || (*token && !p->authorization)) {
		close_post(p);
		return err_set(e, ERR_NOMEM, "no memory to send notifications");
	}
	*out = (struct outlet_way){ .deliver = deliver, .close = close_post, .way = p };
	return 0;
}
