#include "plan/spec/job/retry_on.h"

#include "plan/spec/job/keys.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { STATUS_MOST = 255, ITEM = 32 };

struct item {
	bool excluded;
	int first, last; /* exit statuses; 0: none */
	int signal;      /* 0: none; -1: any */
};

/* The number of the signal with this name, with or without SIG; 0: there is none. */
static int signal_named(const char *name)
{
	const char *bare = strncmp(name, "SIG", 3) ? name : name + 3;
	for (int n = 1; n < NSIG; n++)
		if (sigabbrev_np(n) && !strcmp(sigabbrev_np(n), bare))
			return n;
	return 0;
}

static bool read_statuses(const char *text, struct item *out)
{
	char *end;
	long first = strtol(text, &end, 10), last = first;
	if (end == text)
		return false;
	if (*end == '-') {
		const char *from = end + 1;
		last = strtol(from, &end, 10);
		if (end == from)
			return false;
	}
	out->first = (int)first;
	out->last = (int)last;
	return !*end && first >= 1 && last >= first && last <= STATUS_MOST;
}

static bool read_item(const char *text, struct item *out)
{
	*out = (struct item){ .excluded = *text == '!' };
	text += out->excluded;
	if (!strcmp(text, "any")) {
		*out = (struct item){ out->excluded, 1, STATUS_MOST, -1 };
		return true;
	}
	if (!strcmp(text, "signal")) {
		out->signal = -1;
		return true;
	}
	if (*text >= '0' && *text <= '9')
		return read_statuses(text, out);
	out->signal = signal_named(text);
	return out->signal != 0;
}

/* Copies the next item without blanks around it. False: there is none. */
static bool next_item(const char **at, char out[ITEM])
{
	*at += strspn(*at, ", \t");
	size_t n = strcspn(*at, ", \t");
	job_copy(out, ITEM, *at, n);
	*at += n;
	return n > 0;
}

int job_retry_on_check(const char *list, struct buf *why)
{
	char text[ITEM];
	struct item item;
	int n = 0;
	for (; next_item(&list, text); n++)
		if (!read_item(text, &item)) {
			buf_printf(
				why,
				"\"%s\" is neither an exit status from 1 to %d nor a signal; write "
				"such as any, 1, 64-78, SIGKILL, signal or !2",
				text, STATUS_MOST);
			return -1;
		}
	if (!n)
		buf_puts(why, "the list is empty; write any, or restart.max_restarts = 0 for no "
			      "restart");
	return n ? 0 : -1;
}

static bool item_fits(const struct item *i, int status)
{
	if (WIFSIGNALED(status))
		return i->signal < 0 || i->signal == WTERMSIG(status);
	int code = WEXITSTATUS(status);
	return code >= i->first && code <= i->last;
}

bool job_retry_on_has(const char *list, int status)
{
	char text[ITEM];
	struct item item;
	bool named = false, positive = false;
	while (next_item(&list, text)) {
		if (!read_item(text, &item))
			continue;
		if (item.excluded && item_fits(&item, status))
			return false;
		positive |= !item.excluded;
		named |= !item.excluded && item_fits(&item, status);
	}
	return named || !positive;
}
