#include "agent/health/text.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool health_text_read(const char *root, const char *path, char *out, size_t size)
{
	char whole[PATH_MAX];
	size_t len = 0;
	ssize_t n = 0;
	if (snprintf(whole, sizeof whole, "%s/%s", root ? root : "", path) >= (int)sizeof whole)
		return false;
	int fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	while (len < size - 1 && (n = read(fd, out + len, size - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	out[len] = '\0';
	return len > 0;
}

/* A number that is not negative; *end: behind it. */
static bool read_number(const char *at, const char **end, double *out)
{
	char *stop;
	if (*at != ' ' && *at != '\t' && (*at < '0' || *at > '9'))
		return false;
	double n = strtod(at, &stop);
	if (stop == at || !isfinite(n) || n < 0)
		return false;
	*out = n;
	if (end)
		*end = stop;
	return true;
}

/* The next line; NULL: there is none. */
static const char *next_line(const char *at)
{
	at = strchr(at, '\n');
	return at ? at + 1 : NULL;
}

bool health_text_value(const char *text, const char *key, double *out)
{
	size_t len = strlen(key);
	for (const char *at = text; at; at = next_line(at)) {
		if (strncmp(at, key, len))
			continue;
		const char *rest = at + len + (at[len] == ':');
		if ((*rest == ' ' || *rest == '\t') && read_number(rest, NULL, out))
			return true;
	}
	return false;
}

bool health_text_pressure(const char *text, double *out)
{
	double us;
	if (strncmp(text, "some ", 5))
		return false;
	size_t line = strcspn(text, "\n");
	const char *total = strstr(text, " total=");
	if (!total || (size_t)(total - text) >= line || !read_number(total + 7, NULL, &us))
		return false;
	*out = 1e-6 * us;
	return true;
}

/* The fields of stat are numbered from 1; those from the third on stand behind the last ")". */
bool health_text_process(const char *text, struct health_process *out)
{
	struct health_process p = { .pid = atoi(text) };
	const char *name = strchr(text, '('), *end = strrchr(text, ')');
	double ticks = 0;
	long per_second = sysconf(_SC_CLK_TCK);
	if (!name || !end || end < name || p.pid < 1 || per_second < 1)
		return false;
	snprintf(p.name, sizeof p.name, "%.*s", (int)(end - name - 1 < 19 ? end - name - 1 : 19),
		 name + 1);
	const char *at = end + 1;
	int field = 2;
	while (*at == ' ' && field < 39) {
		at++;
		field++;
		double n = strtod(at, NULL);
		if (field == 12)
			p.faults = n;
		else if (field == 14 || field == 15)
			ticks += n;
		else if (field == 19)
			p.nice = n >= -20 && n <= 19 ? (int)n : 0;
		else if (field == 39)
			p.cpu = n >= 0 && n < 1e6 ? (int)n : -1;
		at += strcspn(at, " \n");
	}
	if (field < 39 || !(ticks >= 0) || !(p.faults >= 0) || !isfinite(ticks + p.faults))
		return false;
	p.seconds = ticks / (double)per_second;
	*out = p;
	return true;
}

bool health_text_delay(const char *text, double *out)
{
	const char *at = text;
	double ran, waited;
	if (!read_number(at, &at, &ran) || !read_number(at, &at, &waited))
		return false;
	*out = 1e-9 * waited;
	return true;
}

bool health_text_disk(const char *text, unsigned major, unsigned minor, struct health_disk *out)
{
	for (const char *at = text; at; at = next_line(at)) {
		unsigned a, b;
		struct health_disk d;
		double reads, merged, sectors, read_ms, writes, merged2, sectors2, write_ms;
		if (sscanf(at, "%u %u %31s %lf %lf %lf %lf %lf %lf %lf %lf", &a, &b, d.name, &reads,
			   &merged, &sectors, &read_ms, &writes, &merged2, &sectors2,
			   &write_ms) != 11 ||
		    a != major || b != minor)
			continue;
		d.requests = reads + writes;
		d.seconds = 1e-3 * (read_ms + write_ms);
		if (!isfinite(d.requests + d.seconds) || d.requests < 0 || d.seconds < 0)
			return false;
		*out = d;
		return true;
	}
	return false;
}

/* The file has two lines for each protocol: the names of the columns, then their values. */
bool health_text_protocol(const char *text, const char *protocol, const char *column, double *out)
{
	size_t len = strlen(protocol);
	const char *names = text, *values;
	while (names && (strncmp(names, protocol, len) || names[len] != ':'))
		names = next_line(names);
	values = names ? next_line(names) : NULL;
	if (!values || strncmp(values, protocol, len) || values[len] != ':')
		return false;
	names += len + 1;
	values += len + 1;
	while (*names == ' ' && *values == ' ') {
		size_t name = strcspn(++names, " \n"), value = strcspn(++values, " \n");
		if (name == strlen(column) && !strncmp(names, column, name))
			return read_number(values, NULL, out);
		names += name;
		values += value;
	}
	return false;
}

bool health_text_clock(const char *text, double *out)
{
	double sum = 0, n = 0, mhz;
	for (const char *at = text; at; at = next_line(at)) {
		const char *colon = strncmp(at, "cpu MHz", 7) ? NULL : strchr(at, ':');
		if (colon && (size_t)(colon - at) < strcspn(at, "\n") &&
		    read_number(colon + 1, NULL, &mhz)) {
			sum += mhz;
			n++;
		}
	}
	if (n < 1 || sum <= 0 || !isfinite(sum))
		return false;
	*out = sum / n;
	return true;
}

static bool names_controller(const char *names, const char *end, const char *controller)
{
	size_t len = strlen(controller);
	if (!len)
		return names == end;
	for (const char *at = names; at < end; at += strcspn(at, ",:") + 1)
		if (strcspn(at, ",:") == len && !strncmp(at, controller, len))
			return true;
	return false;
}

bool health_text_group(const char *text, const char *controller, char *out, size_t size)
{
	for (const char *at = text; at; at = next_line(at)) {
		size_t line = strcspn(at, "\n");
		const char *names = memchr(at, ':', line);
		if (!names)
			continue;
		const char *path = memchr(names + 1, ':', line - (size_t)(names + 1 - at));
		if (!path || path[1] != '/' || !names_controller(names + 1, path, controller))
			continue;
		size_t len = line - (size_t)(path + 1 - at);
		if (len >= size)
			return false;
		memcpy(out, path + 1, len);
		out[len] = '\0';
		return true;
	}
	return false;
}

bool health_text_cpus(const char *text, bool *out, int n)
{
	const char *at = text;
	bool any = false;
	while (*at >= '0' && *at <= '9') {
		char *end;
		long first = strtol(at, &end, 10), last = first;
		if (*end == '-' && end[1] >= '0' && end[1] <= '9')
			last = strtol(end + 1, &end, 10);
		for (long i = first; i <= last && i < n; i++)
			out[i] = true;
		any = true;
		if (*end != ',')
			return *end == '\0' || *end == '\n';
		at = end + 1;
	}
	return any && (*at == '\0' || *at == '\n');
}
