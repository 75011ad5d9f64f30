/* What a process does that makes no progress: its states in the kernel, and the words of
 * debuggers. */
#include "agent/stacks/calls.h"
#include "agent/stacks/frames.h"
#include "agent/stacks/stacks.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* --- /proc/PID/task/TID/syscall --------------------------------------------------------- */

static void the_system_call_and_its_descriptor_are_read(void **state)
{
	(void)state;
	struct call c;
	char text[160];
	snprintf(text, sizeof text, "%d 0x7 0x7ffd0 0x1 0x0 0x0 0x0 0x7ffd12 0x7f40", SYS_fsync);
	stacks_call_parse(text, &c);
	assert_string_equal(c.name, "fsync");
	assert_int_equal(c.role, CALL_FILE);
	assert_int_equal(c.fd, 7);
	snprintf(text, sizeof text, "%d 0x7f00 0x80 0x0 0x0 0x0 0x0 0x7ffd12 0x7f40", SYS_futex);
	stacks_call_parse(text, &c);
	assert_string_equal(c.name, "futex");
	assert_int_equal(c.role, CALL_WAIT);
	assert_int_equal(c.fd, -1);
	stacks_call_parse("99999 0x7 0x0 0x0 0x0 0x0 0x0 0x7ffd12 0x7f40", &c);
	assert_string_equal(c.name, "system call 99999");
	assert_int_equal(c.role, CALL_OTHER);
}

static void what_is_no_system_call_has_none(void **state)
{
	(void)state;
	static const char *const texts[] = { "",    "running", "-1 0x7ffd 0x7f40",    "0",
					     "0 7", "x 0x1",   "18446744073709551616" };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct call c;
		stacks_call_parse(texts[i], &c);
		assert_int_equal(c.role, CALL_NONE);
		assert_string_equal(c.name, "");
		assert_int_equal(c.fd, -1);
	}
}

static void connections_are_waits_and_files_are_not(void **state)
{
	(void)state;
	assert_true(stacks_link_waits("socket:[12]"));
	assert_true(stacks_link_waits("anon_inode:[eventpoll]"));
	assert_false(stacks_link_waits("/data/text.bin"));
	assert_false(stacks_link_waits("pipe:[12]"));
}

/* --- The words of debuggers --------------------------------------------------------------- */

static const char gdb_text[] =
	"[New LWP 12]\n"
	"[Thread debugging using libthread_db enabled]\n"
	"\n"
	"Thread 2 (Thread 0x7f5 (LWP 12) \"control\"):\n"
	"#0  0x00007f40 in poll () from /lib/x86_64-linux-gnu/libc.so.6\n"
	"#1  0x000055d1 in wait_for_event ()\n"
	"\n"
	"Thread 1 (Thread 0x7f4 (LWP 11) \"muster-agent\"):\n"
	"#0  __GI___libc_read (nbytes=..., fd=...) at ../sysdeps/unix/sysv/linux/read.c:26\n"
	"#1  0x00007f41 in ?? () from /usr/lib/libnccl.so.2\n"
	"#2  0x00007f42 in ncclProxy () from /usr/lib/libnccl.so.2\n"
	"#3  0x000055d2 in cause_stuck (d=...) at agent/drill.c:60\n"
	"[Inferior 1 (process 11) detached]\n";

static const char eu_text[] = "PID 11 - process\n"
			      "TID 11:\n"
			      "#0  0x00007f40 read - /usr/lib/x86_64-linux-gnu/libc.so.6\n"
			      "#1  0x000055d2 cause_stuck - /opt/muster/bin/muster-agent\n"
			      "TID 12:\n"
			      "#0  0x00007f40 __poll - /usr/lib/x86_64-linux-gnu/libc.so.6\n";

static void the_innermost_function_outside_the_c_library_is_found(void **state)
{
	(void)state;
	char frame[FRAME_NAME] = "";
	assert_true(stacks_frame_of(gdb_text, 11, frame));
	assert_string_equal(frame, "ncclProxy() of libnccl.so.2");
	assert_true(stacks_frame_of(gdb_text, 12, frame));
	assert_string_equal(frame, "wait_for_event()");
	assert_true(stacks_frame_of(eu_text, 11, frame));
	assert_string_equal(frame, "cause_stuck()");
	assert_false(stacks_frame_of(eu_text, 12, frame));
	assert_false(stacks_frame_of(gdb_text, 13, frame));
	assert_true(stacks_frame_of("Thread 1 (process 5):\n#0  0x1 in spin ()\n", 5, frame));
	assert_string_equal(frame, "spin()");
}

static void damaged_words_of_a_debugger_are_no_function(void **state)
{
	(void)state;
	static const char *const texts[] = { "",
					     "#0",
					     "TID 5:\n#",
					     "TID 5:\n#0",
					     "TID 5:\n#0  0x",
					     "TID 5:\n#0  0x1 in ",
					     "TID 5:",
					     "Thread 1 (LWP",
					     "Thread 1 \n#0 f ()" };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		char frame[FRAME_NAME];
		assert_false(stacks_frame_of(texts[i], 5, frame));
	}
}

/* --- Real processes ----------------------------------------------------------------------- */

struct known {
	struct stuck first, last;
	int n;
	char *report;
};

static void on_known(void *arg, const struct stuck *found, struct buf *report, bool last)
{
	struct known *k = arg;
	*(k->n++ ? &k->last : &k->first) = *found;
	if (last && k->n == 1)
		k->last = *found;
	free(k->report);
	k->report = strdup(buf_str(report));
}

static struct process_id id_of(pid_t pid)
{
	struct process_id id;
	struct process_stat stat;
	process_id_self(&id);
	id.pid = (int)pid;
	assert_int_equal(process_stat_read((int)pid, &stat), 0);
	id.start = stat.start;
	return id;
}

static struct known examine(pid_t pid)
{
	struct known k = { .n = 0 };
	struct process_id id = id_of(pid);
	stacks_take(&id, 30, on_known, &k);
	print_message("%s: %s\n", stacks_kind_word(k.last.kind), k.last.text);
	return k;
}

static void end(pid_t pid, struct known *k)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	free(k->report);
}

/* Waits until the process is in this state. */
static void await_state(pid_t pid, char wanted)
{
	struct process_stat stat = { .state = '?' };
	for (int i = 0; i < 10000 && stat.state != wanted; i++) {
		usleep(1000);
		assert_int_equal(process_stat_read((int)pid, &stat), 0);
	}
	assert_int_equal(stat.state, wanted);
}

static void a_stopped_process_is_named(void **state)
{
	(void)state;
	pid_t pid = fork();
	if (!pid)
		for (;;)
			pause();
	kill(pid, SIGSTOP);
	await_state(pid, 'T');
	struct known k = examine(pid);
	assert_int_equal(k.first.kind, STUCK_STOPPED);
	assert_string_equal(k.last.text, "its process is stopped by a signal");
	await_state(pid, 'T'); /* it stays stopped */
	end(pid, &k);
}

static void a_thread_in_a_file_is_named_with_the_file(void **state)
{
	(void)state;
	char dir[256], path[300], link[64];
	assert_true(tmpdir_make(dir, sizeof dir));
	snprintf(path, sizeof path, "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	pid_t pid = fork();
	if (!pid) {
		char byte;
		_exit(read(fd, &byte, 1) == 1);
	}
	await_state(pid, 'S');
	struct known k = examine(pid);
	snprintf(link, sizeof link, "in the system call read of ");
	assert_int_equal(k.first.kind, STUCK_CALL);
	assert_non_null(strstr(k.first.text, link));
	assert_non_null(strstr(k.first.text, "/fifo"));
	assert_non_null(strstr(k.report, "state S"));
	end(pid, &k);
	close(fd);
	unlink(path);
	rmdir(dir);
}

static void a_process_that_computes_is_named(void **state)
{
	(void)state;
	pid_t pid = fork();
	if (!pid)
		for (volatile unsigned n = 0;; n++)
			;
	await_state(pid, 'R');
	struct known k = examine(pid);
	assert_int_equal(k.first.kind, STUCK_COMPUTING);
	assert_non_null(strstr(k.first.text, "its training thread computes ("));
	end(pid, &k);
}

static void *read_for_ever(void *arg)
{
	char byte;
	while (read(*(int *)arg, &byte, 1) < 0)
		;
	return NULL;
}

/* The first thread waits for another one, such as that which writes checkpoints. */
static void a_thread_for_which_the_first_one_waits_is_named(void **state)
{
	(void)state;
	int fds[2];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (!pid) {
		pthread_t t;
		if (pthread_create(&t, NULL, read_for_ever, &fds[0]))
			_exit(1);
		pthread_setname_np(t, "checkpoint");
		pthread_join(t, NULL);
		_exit(0);
	}
	struct known k = { .n = 0 };
	for (int i = 0; i < 100 && k.first.kind != STUCK_CALL; i++) { /* until the thread runs */
		free(k.report);
		k = examine(pid);
	}
	assert_non_null(
		strstr(k.first.text, "its thread checkpoint is in the system call read of pipe:["));
	end(pid, &k);
	close(fds[0]);
	close(fds[1]);
}

static void a_process_that_is_gone_or_another_one_is_not_examined(void **state)
{
	(void)state;
	struct known k = { .n = 0 };
	struct process_id id = id_of(getpid());
	id.start++;
	stacks_take(&id, 30, on_known, &k);
	assert_int_equal(k.last.kind, STUCK_GONE);
	assert_int_equal(k.n, 1);
	free(k.report);
	k = (struct known){ .n = 0 };
	id = id_of(getpid());
	snprintf(id.boot, sizeof id.boot, "another boot");
	stacks_take(&id, 30, on_known, &k);
	assert_int_equal(k.last.kind, STUCK_GONE);
	free(k.report);
}

/* --- The debugger -------------------------------------------------------------------------- */

static void write_program(const char *dir, const char *name, const char *script)
{
	char path[400];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *out = fopen(path, "w");
	assert_true(out && fprintf(out, "#!/bin/sh\n%s\n", script) > 0 && !fclose(out) &&
		    !chmod(path, 0700));
}

static void a_debugger_that_takes_too_long_is_killed(void **state)
{
	(void)state;
	char dir[256], command[300], *path = strdup(getenv("PATH"));
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	assert_true(path && tmpdir_make(dir, sizeof dir));
	write_program(dir, "gdb", "echo words; exec /bin/sleep 1000");
	setenv("PATH", dir, 1);
	assert_int_equal(stacks_debug(DEBUGGER_NATIVE, getpid(), 0.3, &out, &e), -1);
	assert_int_equal(e.code, ERR_TIMEOUT);
	buf_clear(&out);
	write_program(dir, "gdb", "exit 127"); /* as if it were missing */
	write_program(dir, "eu-stack", "echo \"$@\"");
	assert_int_equal(stacks_debug(DEBUGGER_NATIVE, 4711, 30, &out, &e), 0);
	assert_string_equal(buf_str(&out), "-m -n 64 -p 4711\n");
	write_program(dir, "eu-stack", "exit 127");
	assert_int_equal(stacks_debug(DEBUGGER_NATIVE, 4711, 30, &out, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	setenv("PATH", path, 1);
	buf_fini(&out);
	free(path);
	snprintf(command, sizeof command, "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_system_call_and_its_descriptor_are_read),
		cmocka_unit_test(what_is_no_system_call_has_none),
		cmocka_unit_test(connections_are_waits_and_files_are_not),
		cmocka_unit_test(the_innermost_function_outside_the_c_library_is_found),
		cmocka_unit_test(damaged_words_of_a_debugger_are_no_function),
		cmocka_unit_test(a_stopped_process_is_named),
		cmocka_unit_test(a_thread_in_a_file_is_named_with_the_file),
		cmocka_unit_test(a_process_that_computes_is_named),
		cmocka_unit_test(a_thread_for_which_the_first_one_waits_is_named),
		cmocka_unit_test(a_process_that_is_gone_or_another_one_is_not_examined),
		cmocka_unit_test(a_debugger_that_takes_too_long_is_killed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
