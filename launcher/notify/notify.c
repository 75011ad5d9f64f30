#include "launcher/notify/outlet.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/http/http.h"
#include "plan/spec/job/notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URL_VARIABLE   "MUSTER_NOTIFY_URL"
#define TOKEN_VARIABLE "MUSTER_NOTIFY_TOKEN"

enum { SECRET_MAX = 4096, OUTLETS = 2 };

struct notify {
	struct outlet *outlets[OUTLETS];
	int n;
	int64_t sent;
};

static const struct fields_row *rows(void)
{
	typedef struct notify_message fields_struct;
	static const struct fields_row all[] = { NOTIFY_FIELDS(FIELDS_ROW) FIELDS_END };
	return all;
}

/* --- secrets -------------------------------------------------------------------------- */

/* A secret of a file, otherwise of a variable, otherwise "". */
static int read_secret(const char *file, const char *key, const char *variable,
		       char out[SECRET_MAX], struct err *e)
{
	struct err why = ERR_INIT;
	const char *set = getenv(variable);
	*out = '\0';
	if (*file && file_read_secret(file, out, SECRET_MAX, &why))
		return err_set(e, why.code, "notify.%s: %s", key, why.text);
	if (*file && !*out)
		return err_set(e, ERR_USAGE, "notify.%s: %.200s is empty; write the secret into it",
			       key, file);
	if (!*file && set && strlen(set) >= SECRET_MAX)
		return err_set(e, ERR_USAGE, "the variable %s is too long", variable);
	if (!*file && set)
		snprintf(out, SECRET_MAX, "%s", set);
	return 0;
}

static int read_address(const struct notify_options *o, char out[SECRET_MAX], struct err *e)
{
	struct buf why = BUF_INIT;
	int rc = 0;
	if (*o->url)
		snprintf(out, SECRET_MAX, "%s", o->url);
	else if (read_secret(o->url_file, "url_file", URL_VARIABLE, out, e))
		return -1;
	if (*out && job_notify_address_check(out, &why))
		rc = err_set(e, ERR_USAGE, "%s: %s",
			     *o->url        ? "notify.url"
			     : *o->url_file ? "notify.url_file"
					    : "the variable " URL_VARIABLE,
			     buf_str(&why));
	buf_fini(&why);
	return rc;
}

static int read_token(const struct notify_options *o, char out[SECRET_MAX], struct err *e)
{
	if (read_secret(o->secret_file, "secret_file", TOKEN_VARIABLE, out, e))
		return -1;
	if (http_header_valid(out) && !strchr(out, ' '))
		return 0;
	return err_set(e, ERR_USAGE,
		       "%s holds something else than one word of printable characters; a token is "
		       "one",
		       *o->secret_file ? "notify.secret_file" : "the variable " TOKEN_VARIABLE);
}

/* --- outlets -------------------------------------------------------------------------- */

static int add_outlet(struct notify *n, const struct outlet_way *way, struct err *e)
{
	if (notify_outlet_open(way, &n->outlets[n->n], e))
		return -1;
	n->n++;
	return 0;
}

static int add_address(struct notify *n, const struct notify_options *o, struct err *e)
{
	char url[SECRET_MAX], token[SECRET_MAX] = "";
	struct outlet_way way;
	int rc = read_address(o, url, e);
	if (!rc && *url)
		rc = read_token(o, token, e) ||
		     notify_post_open(url, token, o->ca_file, o->slack, &way, e) ||
		     add_outlet(n, &way, e);
	explicit_bzero(url, sizeof url);
	explicit_bzero(token, sizeof token);
	return rc ? -1 : 0;
}

static int add_command(struct notify *n, const struct notify_options *o, struct err *e)
{
	struct outlet_way way;
	if (!o->command[strspn(o->command, " \t")])
		return 0;
	return notify_command_open(o->command, o->slack, &way, e) || add_outlet(n, &way, e) ? -1
											    : 0;
}

int notify_open(const struct notify_options *o, struct notify **out, struct err *e)
{
	struct notify_result unused;
	struct notify *n = calloc(1, sizeof *n);
	*out = NULL;
	if (!n)
		return err_set(e, ERR_NOMEM, "no memory to send notifications");
	int rc = add_address(n, o, e) || add_command(n, o, e) ? -1 : 0;
	if (rc || !n->n)
		notify_close(n, 0, &unused);
	else
		*out = n;
	return rc;
}

void notify_send(struct notify *n, struct notify_message *m)
{
	m->format = NOTIFY_FORMAT;
	m->version = NOTIFY_VERSION;
	m->time = clock_wall_s();
	m->number = ++n->sent;
	for (int i = 0; i < n->n; i++) {
		json_t *copy = fields_json(rows(), m); /* each thread has its own */
		if (copy)
			notify_outlet_put(n->outlets[i], copy);
	}
}

bool notify_trouble(struct notify *n, char why[NOTIFY_WHY])
{
	for (int i = 0; i < n->n; i++)
		if (notify_outlet_trouble(n->outlets[i], why))
			return true;
	return false;
}

void notify_close(struct notify *n, double patience_s, struct notify_result *out)
{
	double until = clock_s() + patience_s;
	*out = (struct notify_result){ .lost = 0 };
	for (int i = 0; n && i < n->n; i++)
		notify_outlet_finish(n->outlets[i]);
	for (int i = 0; n && i < n->n; i++)
		notify_outlet_close(n->outlets[i], until, out);
	free(n);
}
