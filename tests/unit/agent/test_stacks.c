/* What a process does that makes no progress: its states in the kernel, and the words of
 * debuggers. */
#include "agent/stacks/calls.h"
#include "agent/stacks/frames.h"
#include "agent/stacks/python.h"
#include "agent/stacks/stacks.h"
#include "base/process_stat.h"
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

static void a_sleep_is_told_apart_from_a_wait(void **state)
{
	(void)state;
	struct call c;
	char text[160];
	snprintf(text, sizeof text, "%d 0x0 0x0 0x7ffd0 0x0 0x0 0x0 0x7ffd12 0x7f40",
		 SYS_clock_nanosleep);
	stacks_call_parse(text, &c);
	assert_int_equal(c.role, CALL_SLEEP);
	snprintf(text, sizeof text, "%d 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffd12 0x7f40", SYS_pselect6);
	stacks_call_parse(text, &c);
	assert_int_equal(c.role, CALL_SLEEP);
	snprintf(text, sizeof text, "%d 0x5 0x7ff 0x0 0x0 0x0 0x0 0x7ffd12 0x7f40", SYS_pselect6);
	stacks_call_parse(text, &c);
	assert_int_equal(c.role, CALL_WAIT);
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

static const char py_spy_text[] =
	"Process 11: /venv/bin/python train.py\n"
	"Python v3.11.7 (/usr/bin/python3.11)\n"
	"\n"
	"Thread 12 (idle): \"Thread-1 (feed)\"\n"
	"    wait (/usr/lib/python3.11/threading.py:320)\n"
	"    run (/usr/lib/python3.11/threading.py:982)\n"
	"Thread 11 (active+gil): \"MainThread\"\n"
	"    all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/x.py:4181)\n"
	"    wrapper.<locals>.inner "
	"(/venv/lib/python3.11/site-packages/torch/distributed/y.py:83)\n"
	"    train_step (/home/a (b)/train.py:42)\n"
	"    <module> (/home/a (b)/train.py:60)\n"
	"Thread 13 (idle): \"Thread-2\"\n"
	"    load (/home/a/data.py:7)\n";

static void the_innermost_function_of_python_and_its_caller_are_found(void **state)
{
	(void)state;
	struct python_frames f;
	assert_true(stacks_python_frames(py_spy_text, 11, true, &f));
	assert_string_equal(f.inner, "all_reduce (torch/distributed/x.py:4181)");
	assert_string_equal(f.caller, "train_step (train.py:42)");
	assert_true(stacks_python_frames(py_spy_text, 4711, true, &f)); /* by the thread's name */
	assert_string_equal(f.caller, "train_step (train.py:42)");
	assert_true(stacks_python_frames(py_spy_text, 12, false, &f));
	assert_string_equal(f.inner, "wait (threading.py:320)");
	assert_string_equal(f.caller, "");
	assert_true(stacks_python_frames(py_spy_text, 13, false, &f));
	assert_string_equal(f.inner, "load (data.py:7)");
	assert_string_equal(f.caller, "");
	assert_false(stacks_python_frames(py_spy_text, 4711, false, &f));
	assert_true(
		stacks_python_frames("Thread 5 (idle)\n    g (<frozen importlib._bootstrap>:241)\n"
				     "    <module> (m.py:1)",
				     5, false, &f));
	assert_string_equal(f.inner, "g (<frozen importlib._bootstrap>:241)");
	assert_string_equal(f.caller, "<module> (m.py:1)");
}

static void damaged_words_of_py_spy_are_no_function(void **state)
{
	(void)state;
	static const char *const texts[] = { "",
					     "Error: Permission Denied\n",
					     "Thread 5",
					     "Thread 5\n    \n",
					     "Thread 5\n    f (",
					     "Thread 5\n    f (:1)",
					     "Thread 5\n    f (a.py)",
					     "Thread 5\n    f (a.py:)",
					     "Thread 5\n    f (a.py:x)",
					     "Thread 5\n     (a.py:1)",
					     "Thread 5\n  f (a.py:1)",
					     "Thread 0x5\n    f (a.py:1)" };
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct python_frames f;
		assert_false(stacks_python_frames(texts[i], 5, true, &f));
		assert_string_equal(f.inner, "");
	}
}

static void long_words_of_py_spy_are_cut(void **state)
{
	(void)state;
	struct python_frames f;
	char text[3000] = "Thread 5\n    ";
	memset(text + strlen(text), 'n', 900);
	strcat(text, " (/a/site-packages/");
	memset(text + strlen(text), 'p', 900);
	strcat(text, "/end.py:123456789012)\n");
	assert_true(stacks_python_frames(text, 5, true, &f));
	assert_non_null(strstr(f.inner, "nnn ("));
	assert_non_null(strstr(f.inner, "ppp/end.py:123456789)"));
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

/* --- Other programs ----------------------------------------------------------------------- */

/* Starts a program, and waits until it has written a byte. -1: it is not installed. */
static pid_t start(char *const *argv)
{
	int fds[2];
	char byte;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (!pid) {
		dup2(fds[1], STDOUT_FILENO);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(fds[1]);
	ssize_t n = read(fds[0], &byte, 1);
	close(fds[0]);
	if (n == 1)
		return pid;
	waitpid(pid, NULL, 0);
	return -1;
}

static pid_t start_python(const char *script)
{
	char *argv[] = { (char[]){ "python3" }, (char[]){ "-c" }, (char *)(uintptr_t)script, NULL };
	return start(argv);
}

static void a_program_that_sleeps_is_found_behind_its_shell(void **state)
{
	(void)state;
	char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" },
			 (char[]){ "(echo; exec sleep 1000); true" }, NULL };
	pid_t pid = start(argv);
	struct known k = { .n = 0 };
	for (int i = 0; i < 100 && k.first.kind != STUCK_SLEEPING; i++) { /* until it sleeps */
		free(k.report);
		k = examine(pid);
	}
	assert_string_equal(k.first.text,
			    "its main thread sleeps in the system call clock_nanosleep");
	const char *at = strstr(k.report, "waits for its child, process ");
	assert_non_null(at);
	kill(atoi(at + strlen("waits for its child, process ")), SIGKILL);
	end(pid, &k);
}

/* Runs py-spy in place of the real one, and no other debugger. */
struct doubles {
	char dir[256], *path;
};

static void write_program(const char *dir, const char *name, const char *script);

static struct doubles use_py_spy(const char *script)
{
	struct doubles d = { .path = strdup(getenv("PATH")) };
	assert_true(d.path && tmpdir_make(d.dir, sizeof d.dir));
	if (script)
		write_program(d.dir, "py-spy", script);
	setenv("PATH", d.dir, 1);
	return d;
}

static void use_path(struct doubles *d)
{
	char command[300];
	setenv("PATH", d->path, 1);
	free(d->path);
	snprintf(command, sizeof command, "rm -r '%s'", d->dir);
	assert_int_equal(system(command), 0);
}

#define IN_REDUCE \
	"    all_reduce (/v/site-packages/torch/distributed/distributed_c10d.py:7)\n" \
	"    train_step (/home/a/train.py:42)\n"
#define PRINT(frames) "printf 'Process %s\nThread 0x7f (idle): \"MainThread\"\n" frames "' \"$5\""

/* Another thread reads from a pipe all the time, which means nothing in a program. */
static void the_main_thread_of_python_is_named_with_its_function(void **state)
{
	(void)state;
	pid_t pid = start_python(
		"import os, threading\n"
		"pipe, lock = os.pipe(), threading.Lock()\n"
		"threading.Thread(target=os.read, args=(pipe[0], 1), daemon=True).start()\n"
		"lock.acquire()\n"
		"os.write(1, b'.')\n"
		"lock.acquire()\n");
	if (pid < 0)
		skip(); /* python3 is not installed */
	char process[32];
	snprintf(process, sizeof process, "Process %d\n", (int)pid);
	await_state(pid, 'S');
	struct doubles d = use_py_spy(PRINT(IN_REDUCE));
	struct known k = examine(pid);
	use_path(&d);
	assert_int_equal(k.first.kind, STUCK_WAITING);
	assert_string_equal(k.first.text, "its main thread waits in the system call futex");
	assert_string_equal(k.last.text,
			    "its main thread waits in the system call futex, in all_reduce "
			    "(torch/distributed/distributed_c10d.py:7), called by "
			    "train_step (train.py:42)");
	assert_non_null(strstr(k.report, process));
	assert_null(strstr(k.report, "gdb"));
	end(pid, &k);
}

static void python_without_py_spy_is_examined_with_what_there_is(void **state)
{
	(void)state;
	pid_t pid = start_python("import os, time\nos.write(1, b'.')\ntime.sleep(1000)\n");
	if (pid < 0)
		skip(); /* python3 is not installed */
	await_state(pid, 'S');
	struct doubles d = use_py_spy(NULL);
	struct known k = examine(pid);
	use_path(&d);
	assert_int_equal(k.last.kind, STUCK_SLEEPING);
	assert_non_null(strstr(k.report, "py-spy is not installed"));
	assert_non_null(strstr(k.report, "neither gdb nor eu-stack"));
	assert_string_equal(k.first.text, k.last.text);
	end(pid, &k);
}

static void a_thread_that_spins_in_a_collective_waits(void **state)
{
	(void)state;
	pid_t pid = start_python("import os\nos.write(1, b'.')\nwhile True: pass\n");
	if (pid < 0)
		skip(); /* python3 is not installed */
	struct doubles d = use_py_spy(PRINT(IN_REDUCE));
	struct known k = examine(pid);
	use_path(&d);
	assert_int_equal(k.first.kind, STUCK_COMPUTING);
	assert_int_equal(k.last.kind, STUCK_WAITING);
	assert_non_null(strstr(k.last.text, "its main thread waits and spins ("));
	free(k.report);
	d = use_py_spy(PRINT("    load (/home/a/data.py:12)\n"));
	k = examine(pid);
	use_path(&d);
	assert_int_equal(k.last.kind, STUCK_COMPUTING);
	assert_non_null(strstr(k.last.text, ", in load (data.py:12)"));
	end(pid, &k);
}

static void a_python_that_is_stopped_is_named(void **state)
{
	(void)state;
	pid_t pid = start_python("import os, time\nos.write(1, b'.')\ntime.sleep(1000)\n");
	if (pid < 0)
		skip(); /* python3 is not installed */
	kill(pid, SIGSTOP);
	await_state(pid, 'T');
	struct doubles d = use_py_spy(PRINT(IN_REDUCE));
	struct known k = examine(pid);
	use_path(&d);
	assert_int_equal(k.last.kind, STUCK_STOPPED);
	assert_string_equal(k.last.text, "its process is stopped by a signal");
	assert_non_null(strstr(k.report, "train_step"));
	end(pid, &k);
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
		cmocka_unit_test(a_sleep_is_told_apart_from_a_wait),
		cmocka_unit_test(connections_are_waits_and_files_are_not),
		cmocka_unit_test(the_innermost_function_outside_the_c_library_is_found),
		cmocka_unit_test(damaged_words_of_a_debugger_are_no_function),
		cmocka_unit_test(the_innermost_function_of_python_and_its_caller_are_found),
		cmocka_unit_test(damaged_words_of_py_spy_are_no_function),
		cmocka_unit_test(long_words_of_py_spy_are_cut),
		cmocka_unit_test(a_stopped_process_is_named),
		cmocka_unit_test(a_thread_in_a_file_is_named_with_the_file),
		cmocka_unit_test(a_process_that_computes_is_named),
		cmocka_unit_test(a_thread_for_which_the_first_one_waits_is_named),
		cmocka_unit_test(a_process_that_is_gone_or_another_one_is_not_examined),
		cmocka_unit_test(a_program_that_sleeps_is_found_behind_its_shell),
		cmocka_unit_test(the_main_thread_of_python_is_named_with_its_function),
		cmocka_unit_test(python_without_py_spy_is_examined_with_what_there_is),
		cmocka_unit_test(a_thread_that_spins_in_a_collective_waits),
		cmocka_unit_test(a_python_that_is_stopped_is_named),
		cmocka_unit_test(a_debugger_that_takes_too_long_is_killed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
