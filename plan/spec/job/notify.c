#include "plan/spec/job/notify.h"

#include "base/net.h"
#include "plan/spec/job/keys.h"

#include <stdlib.h>
#include <string.h>

#define BETWEEN ", \t"

static const char *const notices[] = {
#define NOTICE_WORD(ENUM, word, doc) [JOB_NOTICE_##ENUM] = word,
	JOB_NOTICES(NOTICE_WORD)
#undef NOTICE_WORD
		[JOB_NOTICE_COUNT] = NULL
};

const char *job_notice_word(enum job_notice notice)
{
	return notices[notice];
}

/* Moves *at behind the next word, and returns it with its length; NULL: there is none. */
static const char *next_word(const char **at, size_t *len)
{
	const char *word = *at + strspn(*at, BETWEEN);
	*len = strcspn(word, BETWEEN);
	*at = word + *len;
	return *len ? word : NULL;
}

static bool is_word(const char *word, size_t len, const char *text)
{
	return strlen(text) == len && !memcmp(word, text, len);
}

bool job_notice_wanted(const char *on, enum job_notice notice)
{
	const char *word;
	size_t len;
	while ((word = next_word(&on, &len)))
		if (is_word(word, len, notices[notice]))
			return true;
	return false;
}

static int refuse_word(const char *word, size_t len, struct buf *why)
{
	char copy[JOB_SHOWN], shown[JOB_SHOWN];
	job_copy(copy, sizeof copy, word, len);
	const char *near = job_nearest(copy, notices);
	buf_printf(why, "\"%s\" is nothing to notify of; ", job_shown(copy, shown));
	if (near) {
		buf_printf(why, "did you mean %s?", near);
		return -1;
	}
	buf_puts(why, "use none, or of these: ");
	for (int i = 0; i < JOB_NOTICE_COUNT; i++)
		buf_printf(why, "%s%s", i ? ", " : "", notices[i]);
	return -1;
}

int job_notices_check(const char *on, struct buf *why)
{
	const char *word;
	size_t len;
	int words = 0;
	bool none = false;
	while ((word = next_word(&on, &len))) {
		bool known = is_word(word, len, "none");
		none |= known;
		for (int i = 0; i < JOB_NOTICE_COUNT && !known; i++)
			known = is_word(word, len, notices[i]);
		if (!known)
			return refuse_word(word, len, why);
		words++;
	}
	if (words == 1 || (words > 1 && !none))
		return 0;
	buf_puts(why, words ? "none is in a list with other words; leave it out, or use it alone"
			    : "the list is empty; use none to notify of nothing");
	return -1;
}

int job_notify_address_check(const char *url, struct buf *why)
{
	bool sealed = !strncmp(url, "https://", 8), plain = !strncmp(url, "http://", 7);
	const char *host = url + (sealed ? 8 : 7), *fault = NULL;
	if (!sealed && !plain) {
		buf_puts(why,
			 "the address begins with neither https:// nor http://; use https://…");
		return -1;
	}
	size_t n = strcspn(host, "/?#"),
	       name = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");
	for (const char *p = url; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || strchr("\\\"'<>#", *p))
			fault = "the address has a character that no address has; use %XX for it";
	if (memchr(host, '@', n))
		fault = "the address contains a user name or a password; remove them, and use "
			"secret_file";
	else if (n == 0 || name == 0 || name > n)
		fault = "the address names no host; use https://host/path";
	else if (plain && !net_host_is_loopback(host, name))
		fault = "over http:// anyone on the way could read it; use https://…, or "
			"http://localhost:port";
	if (fault)
		buf_puts(why, fault);
	return fault ? -1 : 0;
}

char **job_notify_words(const char *command)
{
	size_t len = strlen(command) + 1, most = len / 2 + 1, n = 0;
	char **words = malloc((most + 1) * sizeof *words + len), *rest;
	if (!words)
		return NULL;
	char *text = (char *)(words + most + 1);
	memcpy(text, command, len);
	for (char *word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
		words[n++] = word;
	words[n] = NULL;
	return words;
}
