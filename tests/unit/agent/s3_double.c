#include "tests/unit/agent/s3_double.h"

#include "base/file.h"
#include "tests/unit/tmpdir.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64];
static pid_t server;

static void path_of(const char *name, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/%s", dir, name);
}

static bool wait_for_port(char url[64])
{
	char path[PATH_MAX];
	path_of("port", path);
	for (;;) {
		struct buf port = BUF_INIT;
		bool there = !file_slurp(path, 100, &port, NULL);
		if (there)
			snprintf(url, 64, "http://127.0.0.1:%.10s", buf_str(&port));
		buf_fini(&port);
		if (there)
			return true;
		if (waitpid(server, NULL, WNOHANG) == server)
			return false;
		nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	}
}

bool s3_double_start(void)
{
	char url[64];
	if (!tmpdir_make(dir, sizeof dir))
		return false;
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("python3", "python3", "tests/doubles/s3_server.py", dir, (char *)NULL);
		_exit(127);
	}
	if (server < 0 || !wait_for_port(url)) {
		file_remove_tree(dir);
		return false;
	}
	setenv("AWS_ENDPOINT_URL_S3", url, 1);
	setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "SECRETTEST", 1);
	setenv("AWS_SESSION_TOKEN", "TOKENTEST", 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	return true;
}

void s3_double_stop(void)
{
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	file_remove_tree(dir);
}

void s3_double_plan(const char *text)
{
	struct err e = ERR_INIT;
	char path[PATH_MAX], log[PATH_MAX];
	path_of("plan", path);
	path_of("log", log);
	unlink(log);
	if (file_replace(path, text, strlen(text), &e))
		abort();
}

int s3_double_count(const char *operation)
{
	char path[PATH_MAX];
	struct buf log = BUF_INIT;
	int n = 0;
	path_of("log", path);
	file_slurp(path, 1 << 26, &log, NULL);
	for (const char *at = buf_str(&log); *at; at = strchr(at, '\n') + 1)
		n += !strncmp(at, operation, strlen(operation));
	buf_fini(&log);
	return n;
}
