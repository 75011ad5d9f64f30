/* The request for a dump of PyTorch's flight recorder, and the names of its files. */
#include "agent/task/recorder.h"
#include "base/run_paths.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
	char dir[256], pipe[RUN_PATH];
};

static struct place make_place(void)
{
	struct place p;
	assert_true(tmpdir_make(p.dir, sizeof p.dir));
	run_path_torch_pipe(p.pipe, p.dir, 3);
	return p;
}

static void remove_place(const struct place *p)
{
	unlink(p->pipe);
	assert_int_equal(rmdir(p->dir), 0);
}

static int request(const struct place *p)
{
	struct err e = ERR_INIT;
	int rc = task_recorder_request(p->dir, 3, &e);
	if (rc)
		print_message("%s\n", e.text);
	return rc ? (int)e.code : 0;
}

static void a_recorder_that_listens_gets_a_byte(void **state)
{
	(void)state;
	char bytes[8];
	struct place p = make_place();
	assert_int_equal(mkfifo(p.pipe, 0600), 0);
	int fd = open(p.pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(request(&p), 0);
	assert_int_equal(read(fd, bytes, sizeof bytes), 1);
	close(fd);
	remove_place(&p);
}

static void a_full_fifo_does_not_block(void **state)
{
	(void)state;
	struct place p = make_place();
	char bytes[4096] = "";
	assert_int_equal(mkfifo(p.pipe, 0600), 0);
	int fd = open(p.pipe, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	while (write(fd, bytes, sizeof bytes) > 0)
		;
	while (write(fd, bytes, 1) > 0)
		;
	assert_int_equal(request(&p), 0);
	close(fd);
	remove_place(&p);
}

static void a_program_without_a_recorder_is_told_apart(void **state)
{
	(void)state;
	struct place p = make_place();
	assert_int_equal(request(&p), ERR_NOTFOUND);
	assert_int_equal(mkfifo(p.pipe, 0600), 0);
	assert_int_equal(request(&p), ERR_NOTFOUND); /* nobody reads it */
	remove_place(&p);
}

static void a_path_that_is_no_fifo_is_not_written(void **state)
{
	(void)state;
	struct stat st;
	char file[RUN_PATH + 8];
	struct place p = make_place();
	snprintf(file, sizeof file, "%s.file", p.pipe);
	int fd = open(p.pipe, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && !close(fd));
	assert_int_equal(request(&p), ERR_IO);
	assert_int_equal(rename(p.pipe, file), 0);
	assert_int_equal(symlink(file, p.pipe), 0);
	assert_int_equal(request(&p), ERR_IO);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(unlink(file), 0); /* a link to a FIFO that is read */
	assert_int_equal(mkfifo(file, 0600), 0);
	fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(request(&p), ERR_IO);
	close(fd);
	unlink(file);
	remove_place(&p);
}

static void the_names_of_its_files_are_known(void **state)
{
	(void)state;
	char path[RUN_PATH];
	run_path_torch_prefix(path, "run/trace/gen-2");
	assert_string_equal(path, "run/trace/gen-2/torch-");
	run_path_torch_pipe(path, "/tmp/x", 7);
	assert_string_equal(path, "/tmp/x/torch-7.pipe");
	assert_int_equal(run_torch_rank("torch-7"), 7);
	assert_int_equal(run_torch_rank("torch-7.json"), 7);
	assert_int_equal(run_torch_rank("nccl_trace_rank_12"), 12);
	assert_int_equal(run_torch_rank("torch-7.pipe"), -1);
	assert_int_equal(run_torch_rank("torch-"), -1);
	assert_int_equal(run_torch_rank("torch-07"), -1);
	run_path_error(path, "run/trace/gen-2", 7);
	assert_string_equal(path, "run/trace/gen-2/error-7.json");
	assert_true(run_is_trace_file("error-7.json")); /* old folders are removed with it */
	assert_true(run_is_trace_file("torch-7"));
	assert_true(run_is_trace_file("torch-7.pipe"));
	assert_false(run_is_trace_file("torch.py"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recorder_that_listens_gets_a_byte),
		cmocka_unit_test(a_full_fifo_does_not_block),
		cmocka_unit_test(a_program_without_a_recorder_is_told_apart),
		cmocka_unit_test(a_path_that_is_no_fifo_is_not_written),
		cmocka_unit_test(the_names_of_its_files_are_known),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
