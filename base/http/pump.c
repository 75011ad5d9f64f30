#include "base/http/pump.h"

#include "base/clock.h"
#include "base/http/transfer.h"

#include <stdlib.h>

/* A request that is under way. */
struct flight {
	struct http_transfer transfer;
	void *tag;
	struct flight *next;
};

struct http_pump {
	const struct curl_library *curl;
	CURLM *multi;
	struct flight *flights;
};

int http_pump_open(struct http_pump **out, struct err *e)
{
	const struct curl_library *curl = http_curl(e);
	if (!curl)
		return -1;
	struct http_pump *p = calloc(1, sizeof *p);
	if (p)
		*p = (struct http_pump){ .curl = curl, .multi = curl->multi_init() };
	if (!p || !p->multi) {
		free(p);
		return err_set(e, ERR_NOMEM, "no memory for HTTP connections");
	}
	*out = p;
	return 0;
}

static void end_flight(struct http_pump *p, struct flight *f)
{
	struct flight **at = &p->flights;
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	p->curl->multi_remove(p->multi, f->transfer.easy);
	http_transfer_close(&f->transfer);
	free(f);
}

void http_pump_close(struct http_pump *p)
{
	if (!p)
		return;
	while (p->flights)
		end_flight(p, p->flights);
	p->curl->multi_cleanup(p->multi);
	free(p);
}

int http_pump_start(struct http_pump *p, const struct http_request *r, void *tag, struct err *e)
{
	struct flight *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "no memory for a request");
	f->tag = tag;
	if (http_transfer_open(&f->transfer, r, e)) {
		free(f);
		return -1;
	}
	if (p->curl->multi_add(p->multi, f->transfer.easy)) {
		http_transfer_close(&f->transfer);
		free(f);
		return err_set(e, ERR_NOMEM, "no memory for a request");
	}
	f->next = p->flights;
	p->flights = f;
	return 0;
}

void http_pump_cut(struct http_pump *p, const void *tag)
{
	for (struct flight *f = p->flights; f; f = f->next)
		if (f->tag == tag) {
			end_flight(p, f);
			return;
		}
}

/* Takes a request that libcurl has finished. */
static bool take_landed(struct http_pump *p, struct http_landed *out)
{
	CURLMsg *m;
	int left;
	while ((m = p->curl->multi_info(p->multi, &left))) {
		CURLcode code = m->data.result;
		struct flight *f = p->flights;
		while (f && f->transfer.easy != m->easy_handle)
			f = f->next;
		if (m->msg != CURLMSG_DONE || !f)
			continue;
		*out = (struct http_landed){ .tag = f->tag };
		out->rc = http_transfer_end(&f->transfer, code, &out->answer, NULL, &out->err);
		end_flight(p, f);
		return true;
	}
	return false;
}

bool http_pump_next(struct http_pump *p, double timeout_s, struct http_landed *out)
{
	double until = clock_s() + timeout_s;
	for (;;) {
		int running, ready;
		p->curl->multi_perform(p->multi, &running);
		if (take_landed(p, out))
			return true;
		double left = until - clock_s();
		if (left <= 0)
			return false;
		p->curl->multi_poll(p->multi, NULL, 0, (int)(left * 1000) + 1, &ready);
	}
}
