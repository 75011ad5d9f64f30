#include "launcher/slurm/rest/parts.h"

#include "base/file.h"
#include "base/http/http.h"
#include "base/net.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN_VARIABLE "SLURM_JWT"
#define TOKEN_REMEDY   "get one with `scontrol token lifespan=SECONDS` on a host of the cluster"

/* --- The address --- */

static int refuse_url(const char *url, const char *why, struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "[slurm] rest = %.200s: %s; use unix:/path, https://host:port, or "
		       "http://localhost:port",
		       url, why);
}

static int locate_socket(const char *url, struct slurm_rest *r, struct err *e)
{
	const char *path = url + strlen("unix:");
	if (*path != '/')
		return refuse_url(url, "the path of the socket does not begin with /", e);
	if (strlen(path) >= sizeof r->socket)
		return refuse_url(url,
				  "the path of the socket is longer than the 107 bytes that a Unix "
				  "socket may have",
				  e);
	strcpy(r->socket, path);
	strcpy(r->url, "http://localhost");
	return 0;
}

static int locate_host(const char *url, struct slurm_rest *r, struct err *e)
{
	const char *host = strstr(url, "://") + 3;
	size_t n = strcspn(host, "/"),
	       name = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
	size_t len = strlen(url);
	if (n == 0 || name > n || strpbrk(url, "?#\\ \"'<>"))
		return refuse_url(url, "this is not the address of a server", e);
	if (memchr(host, '@', n))
		return err_set(
			e, ERR_USAGE,
			"[slurm] rest: the address contains a user name or a password, which "
			"would be in the run folder; remove it: the token is in SLURM_JWT or "
			"in slurm.rest_token_file");
	if (*url == 'h' && url[4] == ':' && !net_host_is_loopback(host, name))
		return refuse_url(url, "over http:// anyone on the way could read the token", e);
	while (len > 0 && url[len - 1] == '/')
		len--;
	if (len >= sizeof r->url)
		return refuse_url(url, "the address is too long", e);
	snprintf(r->url, sizeof r->url, "%.*s", (int)len, url);
	return 0;
}

int slurm_rest_locate(const char *url, struct slurm_rest *r, struct err *e)
{
	int rc;
	if (!http_header_valid(url))
		return refuse_url("…", "the address has an unprintable character", e);
	if (!strncmp(url, "unix:", 5))
		rc = locate_socket(url, r, e);
	else if (!strncmp(url, "https://", 8) || !strncmp(url, "http://", 7))
		rc = locate_host(url, r, e);
	else
		rc = refuse_url(url, "it begins with neither unix: nor https://", e);
	if (!rc)
		snprintf(r->shown, sizeof r->shown, "%s", r->socket[0] ? r->socket : r->url);
	return rc;
}

/* Nobody else may put a socket of his own at the place where users look for the server's. */
static int check_socket(const char *path, struct err *e)
{
	struct stat st, folder;
	char parent[PATH_MAX];
	snprintf(parent, sizeof parent, "%s", path);
	char *slash = strrchr(parent, '/');
	slash[slash == parent] = '\0';
	if (stat(path, &st))
		return err_errno(e, file_error_code(errno),
				 "%.200s: this socket of Slurm's REST interface cannot be used; is "
				 "slurmrestd running on this host, and [slurm] rest its address?",
				 path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(
			e, ERR_USAGE,
			"%.200s: this is not a socket; set [slurm] rest to that of slurmrestd",
			path);
	if (st.st_uid == 0 || st.st_uid == geteuid())
		return 0;
	if (stat(parent, &folder) || (folder.st_mode & S_IWOTH))
		return err_set(
			e, ERR_AUTH,
			"%.200s: this socket belongs to another user, in a folder that everyone "
			"may write to, so it could be there to read your token; use slurmrestd's "
			"own socket, or https",
			path);
	return 0;
}

/* --- The token --- */

/* `scontrol token` prints SLURM_JWT=TOKEN, and people save that. */
static int take_token(const char *text, const char *from, char out[REST_TOKEN], struct err *e)
{
	static const char before[] = TOKEN_VARIABLE "=";
	text += strspn(text, " \t\r\n");
	if (!strncmp(text, before, strlen(before)))
		text += strlen(before);
	size_t n = strcspn(text, " \t\r\n");
	if (n == 0 || n >= REST_TOKEN || text[n + strspn(text + n, " \t\r\n")])
		return err_set(e, ERR_USAGE, "%s holds no token; " TOKEN_REMEDY, from);
	snprintf(out, REST_TOKEN, "%.*s", (int)n, text);
	if (!http_header_valid(out))
		return err_set(e, ERR_USAGE,
			       "%s holds unprintable characters and no token; " TOKEN_REMEDY, from);
	return 0;
}

static int read_token(const char *file, char out[REST_TOKEN], struct err *e)
{
	char text[REST_TOKEN + sizeof TOKEN_VARIABLE];
	struct err why = ERR_INIT;
	const char *set = getenv(TOKEN_VARIABLE);
	int rc;
	if (*file) {
		rc = file_read_secret(file, text, sizeof text, &why)
			     ? err_set(e, why.code, "[slurm] rest_token_file: %s", why.text)
			     : take_token(text, "[slurm] rest_token_file", out, e);
	} else if (set && *set) {
		rc = take_token(set, "the variable " TOKEN_VARIABLE, out, e);
	} else {
		rc = err_set(e, ERR_AUTH,
			     "Slurm's REST interface needs a token, and neither the "
			     "variable " TOKEN_VARIABLE
			     " nor [slurm] rest_token_file gives one; " TOKEN_REMEDY);
	}
	explicit_bzero(text, sizeof text);
	return rc ? -1 : 0;
}

static int digit_of(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const char *at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

/* Decodes base64url (RFC 4648, section 5) up to the first other character. */
static void decode(const char *text, struct buf *out)
{
	unsigned bits = 0;
	int n = 0, digit;
	for (; (digit = digit_of(*text)) >= 0; text++) {
		bits = bits << 6 | (unsigned)digit;
		n += 6;
		if (n >= 8) {
			n -= 8;
			buf_add(out, &(char){ (char)(bits >> n & 255) }, 1);
		}
	}
}

void slurm_rest_token_claims(const char *token, time_t *expires, char user[REST_USER])
{
	const char *dot = strchr(token, '.');
	struct buf text = BUF_INIT;
	int64_t exp = 0;
	*expires = 0;
	user[0] = '\0';
	if (dot)
		decode(dot + 1, &text);
	json_t *claims = json_loadb(buf_str(&text), text.len, 0, NULL);
	if (slurm_rest_number(claims, "exp", &exp))
		*expires = (time_t)exp;
	snprintf(user, REST_USER, "%s", slurm_rest_text(claims, "sun"));
	json_decref(claims);
	buf_fini(&text);
}

static int choose_user(struct slurm_rest *r, struct err *e)
{
	char claimed[REST_USER];
	time_t expires, now = time(NULL);
	const char *set = getenv("SLURM_USER_NAME");
	const struct passwd *us = getpwuid(geteuid());
	slurm_rest_token_claims(r->token, &expires, claimed);
	if (expires > 0 && expires <= now)
		return err_set(
			e, ERR_AUTH,
			"the token for Slurm's REST interface expired %lld s ago; " TOKEN_REMEDY,
			(long long)(now - expires));
	if (!set || !*set)
		set = claimed[0] ? claimed : us ? us->pw_name : "";
	if (claimed[0] && strcmp(claimed, set))
		return err_set(
			e, ERR_AUTH,
			"the token for Slurm's REST interface is user %s's, but SLURM_USER_NAME is "
			"%.64s; unset it, or get a token of that user",
			claimed, set);
	if (!*set || !http_header_valid(set) || strlen(set) >= REST_USER)
		return err_set(
			e, ERR_USAGE,
			"the name of your user on the cluster is unknown; set SLURM_USER_NAME");
	snprintf(r->user, sizeof r->user, "%s", set);
	return 0;
}

/* --- The server --- */

static int ask_version(struct slurm_rest *r, struct err *e)
{
	static const char *const paths[] = { "/openapi/v3", "/openapi" };
	json_t *openapi = NULL;
	struct err why = ERR_INIT;
	int rc = -1;
	for (size_t i = 0; rc && i < sizeof paths / sizeof *paths; i++) {
		const struct rest_call c = { .method = "GET", .path = paths[i] };
		rc = slurm_rest_call(r, &c, &openapi, NULL, &why);
		if (rc && why.code != ERR_NOTFOUND)
			break;
	}
	if (rc)
		return err_set(e, why.code, "%s", why.text);
	rc = slurm_rest_read_version(openapi, &r->version, e);
	json_decref(openapi);
	return rc ? err_prefix(e, "%.200s", r->shown) : 0;
}

int slurm_rest_open(const struct slurm_rest_options *o, struct slurm_rest **out, struct err *e)
{
	struct slurm_rest *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "no memory to reach Slurm's REST interface");
	snprintf(r->ca_file, sizeof r->ca_file, "%s", o->ca_file);
	if (slurm_rest_locate(o->url, r, e) || (r->socket[0] && check_socket(r->socket, e)) ||
	    read_token(o->token_file, r->token, e) || choose_user(r, e) || ask_version(r, e)) {
		slurm_rest_close(r);
		return -1;
	}
	*out = r;
	return 0;
}

void slurm_rest_close(struct slurm_rest *r)
{
	if (!r)
		return;
	explicit_bzero(r->token, sizeof r->token);
	free(r);
}

int slurm_rest_version(const struct slurm_rest *r)
{
	return r->version;
}
