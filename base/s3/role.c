#include "base/s3/role.h"

#include "base/file.h"
#include "base/http/http.h"
#include "base/s3/credentials.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { ANSWER_MOST = 1 << 16, URL = 2048 };

static const double connect_s = 1, total_s = 5;

/* --- answers --------------------------------------------------------------------- */

static bool take_text(const json_t *o, const char *name, bool needed, char *to, size_t n)
{
	const char *s = json_string_value(json_object_get(o, name));
	if (!s)
		return !needed;
	if (strlen(s) >= n || !http_header_valid(s) || (needed && !*s))
		return false;
	strcpy(to, s);
	return true;
}

/* "2026-01-01T00:00:00Z" */
static double time_of(const char *s)
{
	struct tm t = { 0 };
	const char *end = s ? strptime(s, "%Y-%m-%dT%H:%M:%S", &t) : NULL;
	return end ? (double)timegm(&t) : 0;
}

int s3_role_parse(const char *text, size_t n, const char *name, struct s3_keys *out, struct err *e)
{
	struct s3_keys k = { 0 };
	json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	bool right = take_text(o, "AccessKeyId", true, k.id, sizeof k.id) &&
		     take_text(o, "SecretAccessKey", true, k.secret, sizeof k.secret) &&
		     take_text(o, "Token", false, k.token, sizeof k.token);
	k.expires = time_of(json_string_value(json_object_get(o, "Expiration")));
	json_decref(o);
	if (right)
		*out = k;
	s3_keys_wipe(&k);
	return right ? 0
		     : err_set(e, ERR_AUTH,
			       "%s: its answer holds no keys; does this machine have a role that "
			       "may use the object store?",
			       name);
}

static int fetch(const char *method, const char *url, const char *name, const char *value,
		 struct http_answer *out, struct err *e)
{
	struct http_header h = { name, value, true };
	struct http_request r = { .method = method,
				  .url = url,
				  .headers = &h,
				  .n_headers = value && *value ? 1 : 0,
				  .connect_s = connect_s,
				  .total_s = total_s,
				  .most = ANSWER_MOST };
	if (http_send(&r, out, NULL, e))
		return -1;
	if (out->status == 200)
		return 0;
	err_set(e, ERR_AUTH, "%.200s: answered %d in place of keys", url, out->status);
	http_answer_free(out);
	return -1;
}

static void forget(struct http_answer *a)
{
	if (a->body.data)
		explicit_bzero(a->body.data, a->body.len);
	http_answer_free(a);
}

static int fetch_keys(const char *url, const char *name, const char *value, struct s3_keys *k,
		      struct err *e)
{
	struct http_answer a;
	if (fetch("GET", url, name, value, &a, e))
		return -1;
	int rc = s3_role_parse(buf_str(&a.body), a.body.len, url, k, e);
	forget(&a);
	return rc ? -1 : 1;
}

/* --- containers ------------------------------------------------------------------ */

/* Keys travel in clear text only inside the machine. */
static bool may_carry_keys(const char *url)
{
	static const char *const inside[] = { "localhost", "169.254.170.2", "169.254.170.23",
					      "[::1]", "[fd00:ec2::23]" };
	char host[64];
	struct in_addr a;
	if (!strncmp(url, "https://", 8))
		return true;
	if (strncmp(url, "http://", 7))
		return false;
	const char *at = url + 7;
	size_t n = *at == '[' ? strcspn(at, "]") + 1 : strcspn(at, ":/?#");
	if (n >= sizeof host || memchr(at, '@', n) || (at[n] && !strchr(":/", at[n])))
		return false;
	snprintf(host, sizeof host, "%.*s", (int)n, at);
	for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
		if (!strcasecmp(host, inside[i]))
			return true;
	return inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127;
}

static int container_token(struct buf *out, struct err *e)
{
	const char *file = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *text = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	if (file && *file) {
		if (file_slurp(file, ANSWER_MOST, out, e))
			return -1;
		out->len = strcspn(buf_str(out), "\r\n");
		out->data[out->len] = '\0';
	} else {
		buf_puts(out, text ? text : "");
	}
	return 0;
}

int s3_role_of_container(struct s3_keys *k, struct err *e)
{
	char url[URL];
	const char *whole = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	const char *part = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	struct buf token = BUF_INIT;
	if (part && *part)
		snprintf(url, sizeof url, "http://169.254.170.2%.1900s", part);
	else if (whole && *whole)
		snprintf(url, sizeof url, "%.1900s", whole);
	else
		return 0;
	if (!may_carry_keys(url))
		return err_set(e, ERR_AUTH,
			       "AWS_CONTAINER_CREDENTIALS_FULL_URI: %.200s would send keys over an "
			       "unprotected network; use https://",
			       url);
	int rc = container_token(&token, e);
	if (!rc)
		rc = fetch_keys(url, "Authorization", buf_str(&token), k, e);
	if (token.data)
		explicit_bzero(token.data, token.len);
	buf_fini(&token);
	return rc;
}

/* --- machines -------------------------------------------------------------------- */

/* The service gives a token first; a request without one, which another program could be led to
 * send, is refused there. */
static int machine_token(const char *base, char *token, size_t n, struct err *e)
{
	char url[URL];
	struct http_answer a;
	snprintf(url, sizeof url, "%.500s/latest/api/token", base);
	if (fetch("PUT", url, "X-aws-ec2-metadata-token-ttl-seconds", "21600", &a, e))
		return -1;
	snprintf(token, n, "%s", buf_str(&a.body));
	forget(&a);
	return 0;
}

int s3_role_of_machine(struct s3_keys *k, struct err *e)
{
	static const char header[] = "X-aws-ec2-metadata-token";
	char url[URL], token[1024];
	const char *base = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
		   *disabled = getenv("AWS_EC2_METADATA_DISABLED");
	struct http_answer a;
	struct err none = ERR_INIT;
	bool named = base && *base;
	if (disabled && !strcasecmp(disabled, "true"))
		return 0;
	if (!named)
		base = "http://169.254.169.254";
	size_t n = strlen(base);
	snprintf(url, sizeof url, "%.*s", (int)(n && base[n - 1] == '/' ? n - 1 : n), base);
	char root[512];
	snprintf(root, sizeof root, "%.500s", url);
	if (machine_token(root, token, sizeof token, named ? e : &none))
		return named ? -1 : 0; /* this is no machine of such a cloud */
	snprintf(url, sizeof url, "%s/latest/meta-data/iam/security-credentials/", root);
	int rc = fetch("GET", url, header, token, &a, e);
	if (!rc) {
		char role[128];
		snprintf(role, sizeof role, "%.*s", (int)strcspn(buf_str(&a.body), "\r\n"),
			 buf_str(&a.body));
		forget(&a);
		snprintf(url, sizeof url, "%s/latest/meta-data/iam/security-credentials/%s", root,
			 role);
		rc = fetch_keys(url, header, token, k, e);
	}
	explicit_bzero(token, sizeof token);
	return rc;
}
