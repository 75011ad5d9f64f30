#include "base/process_id.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { START_FIELD = 22, STATE_FIELD = 3 };

/* The beginning of a file of /proc, as a text. -1: it cannot be read. */
static int read_text(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t len = 0;
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
	struct process_stat s = { .state = '?' };
	const char *open = strchr(text, '('), *at = strrchr(text, ')');
	char *end;
	if (!open || !at || at < open)
		return -1;
	snprintf(s.name, sizeof s.name, "%.*s", (int)(at - open - 1), open + 1);
	for (int field = STATE_FIELD - 1; *at && field < START_FIELD; field++) {
		at += strcspn(at, " ");
		at += strspn(at, " ");
		if (field == STATE_FIELD - 1 && *at)
			s.state = *at;
	}
	intmax_t start = strtoimax(at, &end, 10);
	if (end == at || *end != ' ' || start < 0 || start == INTMAX_MAX)
		return -1;
	s.start = start;
	*out = s;
	return 0;
}

int process_stat_read(int pid, struct process_stat *out)
{
	char path[64], text[2048];
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	return read_text(path, text, sizeof text) || process_stat_parse(text, out) ? -1 : 0;
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
	return read_text(path, text, sizeof text) || process_owner_parse(text, out) ? -1 : 0;
}

void process_id_self(struct process_id *out)
{
	struct process_id id = { .pid = (int)getpid() };
	struct process_stat s;
	struct stat space;
	if (!process_stat_read(id.pid, &s))
		id.start = s.start;
	if (!stat("/proc/self/ns/pid", &space))
		id.pid_space = (int64_t)space.st_ino;
	if (read_text("/proc/sys/kernel/random/boot_id", id.boot, sizeof id.boot))
		id.boot[0] = '\0';
	id.boot[strcspn(id.boot, "\n")] = '\0';
	*out = id;
}
