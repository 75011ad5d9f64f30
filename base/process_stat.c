#include "base/process_stat.h"

#include "base/human.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int process_text_read(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	out[0] = '\0';
	if (fd < 0)
		return -1;
	ssize_t n;
	while (len < size - 1 && (n = read(fd, out + len, size - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	out[len] = '\0';
	return len ? 0 : -1;
}

/* The name stands in parentheses and may itself contain blanks and parentheses. */
int process_stat_parse(const char *text, struct process_stat *out)
{
	/* fields 3 to 24; those with * are not needed */
	static const char fields[] = " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu %ld %ld "
				     "%*s %*s %*s %*s %" SCNd64 " %*s %ld%c";
	const char *open = strchr(text, '('), *at = strrchr(text, ')');
	unsigned long user, system;
	long reaped_user, reaped_system, pages;
	int parent;
	int64_t start;
	char state, after;
	if (!open || !at || at < open ||
	    sscanf(at + 1, fields, &state, &parent, &user, &system, &reaped_user, &reaped_system,
		   &start, &pages, &after) != 9 ||
	    start < 0 || start == INT64_MAX)
		return -1;
	double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
	*out = (struct process_stat){
		.state = state,
		.parent = parent,
		.cpu_s = ((double)user + (double)system) * tick,
		.reaped_s = ((double)reaped_user + (double)reaped_system) * tick,
		.start = start,
		.rss = (double)pages * (double)sysconf(_SC_PAGESIZE),
	};
	snprintf(out->name, sizeof out->name, "%.*s", (int)(at - open - 1), open + 1);
	human_plain(out->name);
	return 0;
}

int process_stat_read(int pid, struct process_stat *out)
{
	char path[64], text[2048];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	return process_text_read(path, text, sizeof text) || process_stat_parse(text, out) ? -1 : 0;
}

int process_owner_parse(const char *text, uid_t *out)
{
	unsigned long real, effective;
	const char *at = strstr(text, "\nUid:");
	if (!at || sscanf(at, "\nUid: %lu %lu", &real, &effective) != 2 || effective > UINT32_MAX)
		return -1;
	*out = (uid_t)effective;
	return 0;
}

int process_owner_read(int pid, uid_t *out)
{
	char path[64], text[4096];
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	return process_text_read(path, text, sizeof text) || process_owner_parse(text, out) ? -1
											    : 0;
}
