/* disk: checks the folders that a run writes to. */
#include "launcher/doctor/doctor.h"

#include "base/human.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ROOM_MIN (1.0 * (1 << 30))

/* The path itself if it exists, otherwise its nearest existing parent. */
static void find_existing_parent(const char *path, char out[JOB_PATH])
{
	snprintf(out, JOB_PATH, "%s", *path ? path : ".");
	while (access(out, F_OK) && errno == ENOENT) {
		char *slash = strrchr(out, '/');
		if (!slash || slash == out) {
			snprintf(out, JOB_PATH, "%s", slash ? "/" : ".");
			return;
		}
		*slash = '\0';
	}
}

/* level: of the finding if nothing can be written there. need: bytes. */
static void check_folder(const char *what, const char *path, double need, enum finding_level level,
			 struct findings *f)
{
	char there[JOB_PATH], text[HUMAN], more[HUMAN];
	struct stat kind;
	struct statvfs s;
	find_existing_parent(path, there);
	if (!stat(there, &kind) && !S_ISDIR(kind.st_mode)) {
		doctor_found_bad(f, level, what,
				 "name another folder (job.run_dir, checkpoint.dir)",
				 "%s is not a folder", there);
		return;
	}
	if (access(there, W_OK | X_OK) || statvfs(there, &s)) {
		doctor_found_bad(f, level, what,
				 "get permission to write there, or name another folder "
				 "(job.run_dir, checkpoint.dir)",
				 "%s cannot be written: %s", there, strerror(errno));
		return;
	}
	double room = (double)s.f_bavail * (double)s.f_frsize;
	human_bytes(room, text);
	if (need > room)
		doctor_found_bad(f, FINDING_FAIL, what,
				 "free space, lower checkpoint.keep, or name another folder in "
				 "checkpoint.dir",
				 "%s has %s free, but the checkpoints that are kept need %s", there,
				 text, human_bytes(need, more));
	else if (room < ROOM_MIN)
		doctor_found_bad(f, FINDING_WARN, what, "free space", "%s has %s free", there,
				 text);
	else
		doctor_found_ok(f, what, "%s free in %s", text, there);
}

void doctor_check_disk(const struct needs *n, struct findings *f)
{
	check_folder("run folder", n->job ? n->run_dir : ".", *n->ckpt_dir ? 0 : n->checkpoint,
		     n->job ? FINDING_FAIL : FINDING_WARN, f);
	if (*n->ckpt_dir)
		check_folder("checkpoints", n->ckpt_dir, n->checkpoint, FINDING_FAIL, f);
}
