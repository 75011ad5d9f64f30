#include "launcher/cli/run_words.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Polling works on every file system; inotify does not see what other hosts write. */
enum { POLL_MS = 250 };

static volatile sig_atomic_t ended;

/* --- Times --- */

static bool read_ago(const char *text, double now, double *out)
{
	static const struct {
		char unit;
		double seconds;
	} units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
	char *end;
	double n = *text >= '0' && *text <= '9' ? strtod(text, &end) : -1;
	for (size_t i = 0; n >= 0 && i < sizeof units / sizeof *units; i++)
		if (end[0] == units[i].unit && !end[1]) {
			*out = now - n * units[i].seconds;
			return isfinite(*out);
		}
	return false;
}

static bool read_date(const char *text, double now, double *out)
{
	static const char *const forms[] = {
		"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M",
		"%Y-%m-%d",          "%H:%M:%S",          "%H:%M"
	};
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		time_t at = (time_t)now;
		struct tm tm;
		bool dated = forms[i][1] == 'Y';
		if (!localtime_r(&at, &tm))
			return false;
		tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
		tm.tm_isdst = -1;
		const char *end = strptime(text, forms[i], &tm);
		if (!end || *end)
			continue;
		*out = (double)mktime(&tm);
		if (!dated && *out > now)
			*out -= 86400;
		return true;
	}
	return false;
}

int command_time_read(const char *text, double now, double *out, struct err *e)
{
	if (read_ago(text, now, out) || read_date(text, now, out))
		return 0;
	return err_set(e, ERR_USAGE,
		       "\"%.60s\" is not a time; give one such as 10m, 2h or 3d (ago), 14:05, or "
		       "\"2027-01-31 14:05\"",
		       text);
}

const char *command_time_text(double time, char out[32])
{
	struct tm tm;
	time_t t = isfinite(time) && fabs(time) < 1e11 ? (time_t)time : 0;
	strcpy(out, "-");
	if (t > 0 && localtime_r(&t, &tm))
		strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm);
	return out;
}

/* --- Following --- */

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

void command_follow_begin(void)
{
	const struct sigaction action = { .sa_handler = on_signal };
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

bool command_follow_wait(void)
{
	struct pollfd out = { .fd = STDOUT_FILENO }; /* it tells when nobody reads any more */
	return !ended && poll(&out, 1, POLL_MS) <= 0 && !ended;
}
