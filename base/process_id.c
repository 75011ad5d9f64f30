#include "base/process_id.h"

#include "base/process_stat.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void process_id_self(struct process_id *out)
{
	struct process_id id = { .pid = (int)getpid() };
	struct process_stat s;
	struct stat space;
	if (!process_stat_read(id.pid, &s))
		id.start = s.start;
	if (!stat("/proc/self/ns/pid", &space))
		id.pid_space = (int64_t)space.st_ino;
	if (process_text_read("/proc/sys/kernel/random/boot_id", id.boot, sizeof id.boot))
		id.boot[0] = '\0';
	id.boot[strcspn(id.boot, "\n")] = '\0';
	*out = id;
}
