/* A request with all its attempts. */
#include "base/s3/client.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static double chance(void)
{
	uint32_t r;
	return getrandom(&r, sizeof r, 0) == sizeof r ? r * 0x1p-32 : 0.5;
}

static void unlink_call(struct s3_line *l, struct s3_call *call)
{
	struct s3_call **at = &l->calls;
	while (*at && *at != call)
		at = &(*at)->link;
	if (*at)
		*at = call->link;
}

static void finish(struct s3_line *l, struct s3_call *call, int rc)
{
	unlink_call(l, call);
	s3_unprepare(call);
	call->rc = rc;
	call->state = S3_DONE;
}

/* Sends the request, or waits to send it again. */
static void launch(struct s3_line *l, struct s3_call *call)
{
	call->attempt++;
	call->state = S3_FLYING;
	call->err = (struct err)ERR_INIT;
	http_answer_free(&call->answer);
	if (s3_prepare(l->client, call, &call->err) ||
	    http_pump_start(l->pump, &call->http, call, &call->err))
		finish(l, call, -1);
}

void s3_line_start(struct s3_line *l, struct s3_call *call)
{
	s3_sha256(call->r.body, call->r.size, call->sha256);
	call->began = clock_s();
	call->link = l->calls;
	l->calls = call;
	launch(l, call);
}

/* An attempt has failed: another one follows after a pause, or the call has failed. */
static void try_again(struct s3_line *l, struct s3_call *call, double asked)
{
	double now = clock_s(), spent = now - call->began;
	double pause = s3_pause(&l->client->patience, call->attempt, spent, asked, chance());
	call->repeated = true;
	if (pause < 0) {
		char text[sizeof call->err.text];
		snprintf(text, sizeof text, "%s", call->err.text);
		if (call->attempt > 1)
			err_set(&call->err, call->err.code,
				"%.900s; given up after %d attempts in %.0f s", text, call->attempt,
				spent);
		finish(l, call, -1);
		return;
	}
	call->state = S3_WAITING;
	call->next = now + pause;
}

static bool is_success(struct s3_call *call)
{
	call->code[0] = '\0';
	if (call->status / 100 != 2)
		return false;
	/* the status line of some answers is sent before the work is done */
	if (!strcmp(call->r.method, "POST") && call->answer.body.len < 1 << 16 &&
	    strstr(buf_str(&call->answer.body), "<Error>"))
		s3_read_code(call, NULL, 0);
	return !call->code[0];
}

static void judge_answer(struct s3_line *l, struct s3_call *call)
{
	char after[64];
	call->status = call->answer.status;
	if (is_success(call)) {
		finish(l, call, 0);
		return;
	}
	s3_explain(call);
	http_answer_header(&call->answer, "Retry-After", after, sizeof after);
	if (s3_answer_may_pass(call->status, call->code)) {
		try_again(l, call, s3_retry_after(after, clock_wall_s()));
	} else if (!strcmp(call->code, "ExpiredToken") && !call->renewed) {
		call->renewed = true;
		s3_credentials_expired(l->client->credentials);
		try_again(l, call, 0);
	} else {
		finish(l, call, -1);
	}
}

static void land(struct s3_line *l, struct http_landed *landed)
{
	struct s3_call *call = landed->tag;
	if (!landed->rc) {
		call->answer = landed->answer;
		judge_answer(l, call);
		return;
	}
	call->status = 0;
	call->err = landed->err;
	bool again = s3_may_pass(call->err.code);
	if (call->err.code == ERR_NOTFOUND) /* a host without a name is no missing object */
		call->err.code = ERR_NET;
	if (again)
		try_again(l, call, 0);
	else
		finish(l, call, -1);
}

/* Sends what waited long enough; returns the seconds until the next is due. */
static double launch_due(struct s3_line *l)
{
	double wait = 1, now = clock_s();
	for (struct s3_call *c = l->calls, *next; c; c = next) {
		next = c->link;
		if (c->state != S3_WAITING)
			continue;
		if (c->next <= now)
			launch(l, c);
		else
			wait = fmin(wait, c->next - now);
	}
	return wait;
}

int s3_line_wait(struct s3_line *l, struct s3_call *call, struct err *e)
{
	struct http_landed landed;
	while (call->state != S3_DONE) {
		double wait = launch_due(l);
		if (call->state != S3_DONE && http_pump_next(l->pump, wait, &landed))
			land(l, &landed);
	}
	if (call->rc && e)
		*e = call->err;
	return call->rc;
}

void s3_line_poll(struct s3_line *l)
{
	struct http_landed landed;
	launch_due(l);
	while (l->calls && http_pump_next(l->pump, 0, &landed))
		land(l, &landed);
}

void s3_call_free(struct s3_call *call)
{
	s3_unprepare(call);
	http_answer_free(&call->answer);
}

void s3_call_end(struct s3_line *l, struct s3_call *call)
{
	if (call->state != S3_DONE) {
		http_pump_cut(l->pump, call);
		unlink_call(l, call);
	}
	s3_call_free(call);
	call->state = S3_DONE;
}

int s3_do(struct s3_client *c, struct s3_call *call, struct err *e)
{
	struct s3_line *l;
	if (s3_line_take(c, &l, e)) {
		call->rc = -1;
		return -1;
	}
	s3_line_start(l, call);
	int rc = s3_line_wait(l, call, e);
	s3_line_give(l);
	return rc;
}
