/* Any text in place of a file of /proc or /sys: each parser returns, and what it accepts is in
 * range. */
#include "agent/health/text.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_number(bool ok, double n)
{
	if (ok && !(isfinite(n) && n >= 0))
		abort();
}

static void check_process(const char *text)
{
	struct health_process p;
	if (!health_text_process(text, &p))
		return;
	check_number(true, p.seconds);
	check_number(true, p.faults);
	if (p.pid < 1 || p.nice < -20 || p.nice > 19 || strlen(p.name) >= sizeof p.name)
		abort();
}

static void check_disk(const char *text)
{
	struct health_disk d;
	if (!health_text_disk(text, 8, 1, &d))
		return;
	check_number(true, d.requests);
	check_number(true, d.seconds);
}

static void check_group(const char *text, const char *controller)
{
	char path[64];
	if (health_text_group(text, controller, path, sizeof path) &&
	    (path[0] != '/' || strlen(path) >= sizeof path || strchr(path, '\n')))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool cpus[64] = { false };
	double n = -1;
	char *text = strndup((const char *)data, size);
	if (!text)
		abort();
	check_number(health_text_value(text, "throttled_usec", &n), n);
	check_number(health_text_pressure(text, &n), n);
	check_number(health_text_delay(text, &n), n);
	check_number(health_text_clock(text, &n), n);
	check_number(health_text_protocol(text, "Tcp", "RetransSegs", &n), n);
	check_process(text);
	check_disk(text);
	check_group(text, "");
	check_group(text, "cpu");
	health_text_cpus(text, cpus, 64);
	free(text);
	return 0;
}
