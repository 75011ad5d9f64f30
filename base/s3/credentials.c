#include "base/s3/credentials.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/http/http.h"
#include "base/s3/role.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MOST = 1 << 20 };

/* Temporary keys are fetched again this long before they expire. */
static const double early_s = 300;

struct s3_credentials {
	pthread_mutex_t lock;
	struct s3_keys keys; /* id "": none yet */
};

struct s3_credentials *s3_credentials_open(void)
{
	struct s3_credentials *c = calloc(1, sizeof *c);
	if (c)
		pthread_mutex_init(&c->lock, NULL);
	return c;
}

void s3_keys_wipe(struct s3_keys *k)
{
	explicit_bzero(k, sizeof *k);
}

void s3_credentials_close(struct s3_credentials *c)
{
	if (!c)
		return;
	s3_keys_wipe(&c->keys);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Copies a part of the keys. False: it is too long, or not printable. */
static bool set_part(char *to, size_t n, const char *from, size_t len)
{
	if (len >= n)
		return false;
	memcpy(to, from, len);
	to[len] = '\0';
	return http_header_valid(to);
}

/* --- the environment ------------------------------------------------------------- */

static int keys_of_environment(struct s3_keys *k, struct err *e)
{
	const char *id = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY"),
		   *token = getenv("AWS_SESSION_TOKEN");
	if (!id || !*id)
		return 0;
	if (!secret || !*secret)
		return err_set(e, ERR_AUTH,
			       "AWS_ACCESS_KEY_ID is set, but not AWS_SECRET_ACCESS_KEY; set both, "
			       "or neither");
	if (!set_part(k->id, sizeof k->id, id, strlen(id)) ||
	    !set_part(k->secret, sizeof k->secret, secret, strlen(secret)) ||
	    !set_part(k->token, sizeof k->token, token ? token : "", token ? strlen(token) : 0))
		return err_set(e, ERR_AUTH,
			       "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN is "
			       "too long, or not printable; set them again");
	return 1;
}

/* --- the credentials file -------------------------------------------------------- */

static const char *skip_blanks(const char *s, const char *end)
{
	while (s < end && (*s == ' ' || *s == '\t'))
		s++;
	return s;
}

static size_t trimmed(const char *s, const char *end)
{
	while (end > s && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	return (size_t)(end - s);
}

static bool is_word(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && !memcmp(s, word, n);
}

/* Takes "name = value". False: the value cannot be a key. */
static bool take_pair(const char *line, const char *end, struct s3_keys *k)
{
	const char *equals = memchr(line, '=', (size_t)(end - line));
	if (!equals)
		return true;
	size_t name = trimmed(line, equals);
	const char *value = skip_blanks(equals + 1, end);
	size_t n = trimmed(value, end);
	if (is_word(line, name, "aws_access_key_id"))
		return set_part(k->id, sizeof k->id, value, n);
	if (is_word(line, name, "aws_secret_access_key"))
		return set_part(k->secret, sizeof k->secret, value, n);
	if (is_word(line, name, "aws_session_token"))
		return set_part(k->token, sizeof k->token, value, n);
	return true;
}

int s3_profile_parse(const char *text, const char *profile, const char *name, struct s3_keys *out,
		     struct err *e)
{
	struct s3_keys k = { 0 };
	bool inside = false, found = false, right = true;
	for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
		end = strchrnul(line, '\n');
		const char *at = skip_blanks(line, end);
		const char *close = at < end && *at == '[' ? memchr(at, ']', (size_t)(end - at))
							   : NULL;
		if (close) {
			const char *word = skip_blanks(at + 1, close);
			inside = is_word(word, trimmed(word, close), profile);
			found |= inside;
		} else if (inside && at < end && *at != '#' && *at != ';') {
			right &= take_pair(at, end, &k);
		}
	}
	int rc = found;
	if (found && (!right || !k.id[0] || !k.secret[0]))
		rc = err_set(e, ERR_AUTH,
			     "%s: the profile %.64s lacks a valid aws_access_key_id or "
			     "aws_secret_access_key; write them there, or choose another with "
			     "AWS_PROFILE",
			     name, profile);
	if (rc > 0)
		*out = k;
	s3_keys_wipe(&k);
	return rc;
}

/* Others must not read keys. */
static int check_mode(const char *path, struct err *e)
{
	struct stat st;
	if (stat(path, &st) || !(st.st_mode & (S_IRWXG | S_IRWXO)))
		return 0;
	return err_set(
		e, ERR_AUTH,
		"%s: other users may read these keys; run `chmod 600` on it, and have the keys "
		"replaced if someone could have read them",
		path);
}

static int keys_of_file(struct s3_keys *k, struct err *e)
{
	char path[PATH_MAX];
	const char *named = getenv("AWS_SHARED_CREDENTIALS_FILE"), *home = getenv("HOME"),
		   *profile = getenv("AWS_PROFILE");
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	bool wanted = (named && *named) || (profile && *profile);
	if (named && *named)
		snprintf(path, sizeof path, "%s", named);
	else
		snprintf(path, sizeof path, "%s/.aws/credentials", home ? home : "");
	if (!profile || !*profile)
		profile = "default";
	int rc = 0;
	if (file_slurp(path, FILE_MOST, &text, &why))
		rc = why.code == ERR_NOTFOUND && !wanted ? 0 : err_set(e, ERR_AUTH, "%s", why.text);
	else if (check_mode(path, e))
		rc = -1;
	else
		rc = s3_profile_parse(buf_str(&text), profile, path, k, e);
	if (rc == 0 && wanted)
		rc = err_set(e, ERR_AUTH, "%s: there is no profile %.64s; correct AWS_PROFILE",
			     path, profile);
	if (text.data)
		explicit_bzero(text.data, text.len);
	buf_fini(&text);
	return rc;
}

/* --- all sources ----------------------------------------------------------------- */

/* Each returns 1: found; 0: it is not used here; -1. */
static int (*const sources[])(struct s3_keys *k, struct err *e) = {
	keys_of_environment,
	keys_of_file,
	s3_role_of_container,
	s3_role_of_machine,
};

static int find_keys(struct s3_keys *k, struct err *e)
{
	int rc = 0;
	for (size_t i = 0; i < sizeof sources / sizeof *sources && !rc; i++) {
		s3_keys_wipe(k);
		rc = sources[i](k, e);
	}
	if (rc == 0)
		rc = err_set(e, ERR_AUTH,
			     "there are no keys for the object store; set AWS_ACCESS_KEY_ID and "
			     "AWS_SECRET_ACCESS_KEY, or write them to ~/.aws/credentials");
	return rc < 0 ? -1 : 0;
}

int s3_credentials_get(struct s3_credentials *c, struct s3_keys *out, struct err *e)
{
	int rc = 0;
	pthread_mutex_lock(&c->lock);
	double now = clock_wall_s();
	if (!c->keys.id[0] || (c->keys.expires > 0 && now > c->keys.expires - early_s)) {
		struct s3_keys fresh;
		struct err why = ERR_INIT;
		rc = find_keys(&fresh, &why);
		if (!rc)
			c->keys = fresh;
		else if (c->keys.id[0] && now < c->keys.expires)
			rc = 0; /* the old ones are valid for some minutes more */
		else
			err_set(e, why.code, "%s", why.text);
		s3_keys_wipe(&fresh);
	}
	if (!rc)
		*out = c->keys;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

void s3_credentials_expired(struct s3_credentials *c)
{
	pthread_mutex_lock(&c->lock);
	s3_keys_wipe(&c->keys);
	pthread_mutex_unlock(&c->lock);
}
