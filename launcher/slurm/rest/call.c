#include "launcher/slurm/rest/parts.h"

#include "base/http/http.h"
#include "launcher/slurm/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_S 10.0
#define TOTAL_S   60.0

/* A description of 10,000 nodes takes some 30 MB. */
enum { ANSWER_MAX = 128 << 20, ERRORS_SHOWN = 8, TRIES = 3 };

#define NEW_TOKEN \
	"get a new token with `scontrol token`, and put it into SLURM_JWT or " \
	"slurm.rest_token_file"

void slurm_rest_messages(const json_t *answer, const char *name, struct buf *out)
{
	const json_t *list = json_object_get(answer, name), *item;
	size_t i;
	json_array_foreach(list, i, item)
	{
		const char *error = slurm_rest_text(item, "error");
		const char *what = slurm_rest_text(item, "description");
		if (i == ERRORS_SHOWN)
			break;
		if (out->len)
			buf_puts(out, "; ");
		bool twice = *error && strstr(what, error);
		buf_printf(out, "%.200s%s%.200s", what, *what && *error && !twice ? ": " : "",
			   twice ? "" : error);
		if (!*what && !*error)
			buf_puts(out, json_is_string(item) ? json_string_value(item)
							   : "a message without a text");
	}
}

/* clang-format off */
static const struct {
	int least, most; /* status */
	enum err_code code;
	const char *text;
} statuses[] = {
	{ 300, 399, ERR_PROTO,    "the server sends us to another address, and muster does not send the token there; set [slurm] rest to the address of slurmrestd itself" },
	{ 401, 401, ERR_AUTH,     "the server refuses the token: it is expired, or for another user or cluster; " NEW_TOKEN },
	{ 403, 403, ERR_DENIED,   "the server does not allow this to you; ask the administrators of the cluster" },
	{ 404, 404, ERR_NOTFOUND, "the server does not know this request; is [slurm] rest the address of slurmrestd?" },
	{ 407, 407, ERR_PROTO,    "a proxy asks for a password; set [slurm] rest to the address of slurmrestd itself" },
	{ 413, 413, ERR_PROTO,    "the request is too long for the server" },
	{ 429, 429, ERR_TIMEOUT,  "the server gets too many requests; try again later" },
	{ 400, 499, ERR_PROTO,    "the server refuses the request" },
	{ 502, 504, ERR_NET,      "the server in front of slurmrestd does not reach it; ask the administrators of the cluster" },
	{ 500, 599, ERR_IO,       "the server failed; see the log of slurmrestd" },
};

/* What Slurm says, and what helps. */
static const struct {
	const char *text;
	enum err_code code;
	const char *remedy;
} remedies[] = {
	{ "uthentication",              ERR_AUTH,     "; " NEW_TOKEN },
	{ "config is unable to load",   ERR_AUTH,     "; Slurm's controller is down, or refuses the token: if it is up, " NEW_TOKEN },
	{ "Unable to contact",          ERR_TIMEOUT,  "; Slurm's controller does not answer: try again when it is up" },
	{ "Invalid job id",             ERR_NOTFOUND, "; the job is unknown, or ended some minutes ago" },
	{ "Unspecified error",          ERR_AUTH,     "; Slurm's controller is down, or refuses the token: if it is up, " NEW_TOKEN },
	{ "Unable to find JobId",       ERR_NOTFOUND, "; the job is unknown, or ended some minutes ago" },
	{ "can not be altered now",     ERR_IO,       "; a job that waits can only be cancelled without a signal" },
	{ "Access/permission denied",   ERR_DENIED,   "; the job or the change needs rights that the token's user does not have" },
	{ "already",                    ERR_IO,       "" },
};
/* clang-format on */

/* Slurm's own words, which may come with any status. */
static int fail_by_slurm(const struct slurm_rest *r, const json_t *answer, struct err *e)
{
	struct buf said = BUF_INIT;
	slurm_rest_messages(answer, "errors", &said);
	const char *text = buf_str(&said), *remedy = slurm_queue_remedy(text);
	enum err_code code = ERR_IO;
	for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
		if (strstr(text, remedies[i].text)) {
			code = remedies[i].code;
			remedy = remedies[i].remedy;
			break;
		}
	err_set(e, code, "Slurm refuses the request (%.120s): %.500s%s", r->shown, text, remedy);
	buf_fini(&said);
	return -1;
}

static int fail_by_status(const struct slurm_rest *r, const struct http_answer *a, const char *path,
			  struct err *e)
{
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
		if (a->status >= statuses[i].least && a->status <= statuses[i].most)
			return err_set(e, statuses[i].code, "%.200s: %s (status %d of %.60s)",
				       r->shown, statuses[i].text, a->status, path);
	return err_set(
		e, ERR_PROTO,
		"%.200s: status %d is no answer to a request; is [slurm] rest the address of "
		"slurmrestd?",
		r->shown, a->status);
}

static bool has_errors(const json_t *answer)
{
	return json_array_size(json_object_get(answer, "errors")) > 0;
}

static int read_answer(const struct slurm_rest *r, const struct rest_call *c, const char *path,
		       struct http_answer *a, json_t **out, struct err *e)
{
	json_error_t at = { .line = -1 };
	json_t *answer = json_loadb(buf_str(&a->body), a->body.len, 0, &at);
	int rc = 0;
	if (json_is_object(answer) && has_errors(answer) && !(c->keep_errors && a->status == 200) &&
	    a->status != 401)
		rc = fail_by_slurm(r, answer, e);
	else if (a->status != 200)
		rc = fail_by_status(r, a, path, e);
	else if (!json_is_object(answer))
		rc = err_set(
			e, ERR_PROTO,
			"%.200s: the answer is not that of Slurm's REST interface (%s%.80s%s); is "
			"[slurm] rest the address of slurmrestd?",
			r->shown, a->body.len ? "it is " : "it is empty",
			a->body.len ? (answer ? "JSON of another kind" : a->content_type) : "",
			a->body.len && !answer ? ", and not valid JSON" : "");
	if (rc)
		json_decref(answer);
	else
		*out = answer;
	return rc;
}

static int send_call(struct slurm_rest *r, const struct rest_call *c, const char *path,
		     struct http_answer *out, enum http_reach *reach, struct err *e)
{
	char url[sizeof r->url + 300];
	char *body = c->body ? json_dumps(c->body, JSON_COMPACT) : NULL;
	const struct http_header headers[] = {
		{ "X-SLURM-USER-NAME", r->user, false },
		{ "X-SLURM-USER-TOKEN", r->token, true },
		{ "Accept", "application/json", false },
	};
	if (c->body && !body)
		return err_set(e, ERR_NOMEM, "no memory for a request to Slurm");
	snprintf(url, sizeof url, "%s%s", r->url, path);
	const struct http_request request = {
		.method = c->method,
		.url = url,
		.socket = r->socket[0] ? r->socket : NULL,
		.ca_file = r->ca_file[0] ? r->ca_file : NULL,
		.headers = headers,
		.n_headers = sizeof headers / sizeof *headers,
		.body = body,
		.content_type = "application/json",
		.connect_s = CONNECT_S,
		.total_s = r->total_s > 0 ? r->total_s : TOTAL_S,
		.most = ANSWER_MAX,
	};
	int rc = http_send(&request, out, reach, e);
	free(body);
	return rc ? err_prefix(e, "Slurm's REST interface") : 0;
}

/* If the server may have acted on a request, the request is repeated only if it changes nothing, so
 * that no job is submitted twice. */
static bool may_repeat(const struct rest_call *c, enum http_reach reach, const struct err *e)
{
	if (e->code != ERR_NET)
		return false;
	return reach == HTTP_UNREAD || (reach == HTTP_SENT && !strcmp(c->method, "GET"));
}

/*
 * slurmrestd (22.05) polls descriptors that another thread of it may have closed. On a busy host
 * the number belongs to the next connection by then, and slurmrestd takes that one for broken and
 * closes it, whatever has come over it.
 */
static int send_again_if_harmless(struct slurm_rest *r, const struct rest_call *c, const char *path,
				  struct http_answer *out, bool *sent, struct err *e)
{
	for (int tries = 1;; tries++) {
		enum http_reach reach = HTTP_KEPT;
		struct err why = ERR_INIT;
		int rc = send_call(r, c, path, out, &reach, &why);
		if (sent)
			*sent = reach == HTTP_SENT;
		if (!rc)
			return 0;
		if (tries == TRIES || !may_repeat(c, reach, &why))
			return err_set(e, why.code, "%s", why.text);
	}
}

int slurm_rest_call(struct slurm_rest *r, const struct rest_call *c, json_t **answer, bool *sent,
		    struct err *e)
{
	char path[300];
	struct http_answer a;
	if (*c->path == '/')
		snprintf(path, sizeof path, "%s", c->path);
	else
		snprintf(path, sizeof path, "/slurm/v0.0.%d/%s", r->version, c->path);
	if (send_again_if_harmless(r, c, path, &a, sent, e))
		return -1;
	int rc = read_answer(r, c, path, &a, answer, e);
	http_answer_free(&a);
	return rc;
}
