/* Tests reads and writes of whole files, and files that exist either completely or not at all. */
#include "base/file.h"
#include "base/process.h"
#include "tests/unit/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static const char *in_dir(const char *name)
{
	static char path[4][256];
	static int next;
	next = (next + 1) % 4;
	snprintf(path[next], sizeof path[next], "%s/%s", dir, name);
	return path[next];
}

static int names_in_dir(void)
{
	char command[300], out[16] = "";
	snprintf(command, sizeof command, "ls -A %s | wc -l", dir);
	FILE *f = popen(command, "r");
	assert_non_null(fgets(out, sizeof out, f));
	pclose(f);
	return atoi(out);
}

static unsigned mode_of(const char *path)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

/* This process has not called process_begin, so no umask of a parent is known; then the file is
 * private. tests/cli/schedule.bats has the umasks. */
static void a_published_file_has_the_mode_of_the_parents_umask(void **state)
{
	(void)state;
	const char *path = in_dir("picture");
	assert_int_equal(process_public_mode(), 0600);
	assert_int_equal(file_publish(path, "<svg/>", 6, NULL), 0);
	assert_int_equal(mode_of(path), 0600);
	umask(027);
	process_begin();
	assert_int_equal(process_public_mode(), 0640);
	assert_int_equal(file_publish(path, "<svg/>", 6, NULL), 0);
	assert_int_equal(mode_of(path), 0640);
	umask(0777);
	process_begin();
	assert_int_equal(file_publish(path, "<svg/>", 6, NULL), 0);
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(names_in_dir(), 1);
	unlink(path);
}

static void a_replaced_file_holds_the_new_text_and_is_private(void **state)
{
	(void)state;
	const char *path = in_dir("text");
	umask(0);
	assert_int_equal(file_replace(path, "old", 3, NULL), 0);
	assert_int_equal(file_replace(path, "newer", 5, NULL), 0);
	struct buf b = BUF_INIT;
	assert_int_equal(file_slurp(path, 100, &b, NULL), 0);
	assert_string_equal(buf_str(&b), "newer");
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(names_in_dir(), 1);
	unlink(path);
	buf_fini(&b);
}

static void a_replacement_that_fails_leaves_the_old_file_and_nothing_else(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	const char *path = in_dir("folder");
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mkdir(in_dir("folder/x"), 0700), 0);
	assert_int_equal(file_replace(path, "text", 4, &e), -1);
	assert_int_equal(e.code, ERR_IO);
	assert_non_null(strstr(e.text, path));
	assert_int_equal(names_in_dir(), 1);
	rmdir(in_dir("folder/x"));
	rmdir(path);
	assert_int_equal(file_replace(in_dir("no/such"), "text", 4, &e), -1);
}

static void a_link_under_the_temporary_name_is_not_followed(void **state)
{
	(void)state;
	char path[200], trap[240], treasure[200];
	struct stat st;
	snprintf(path, sizeof path, "%s", in_dir("text"));
	snprintf(treasure, sizeof treasure, "%s", in_dir("treasure"));
	snprintf(trap, sizeof trap, "%s.tmp.%ld", path, (long)getpid());
	assert_int_equal(symlink(treasure, trap), 0);
	assert_int_equal(file_replace(path, "text", 4, NULL), 0);
	assert_int_equal(stat(treasure, &st), -1);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	unlink(path);
}

static void a_link_that_leads_nowhere_exists(void **state)
{
	(void)state;
	const char *path = in_dir("link");
	errno = EAGAIN;
	assert_false(file_exists(path));
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(symlink("/nowhere/at/all", path), 0);
	assert_true(file_exists(path));
	assert_true(file_exists(dir));
	unlink(path);
}

static void slurp_refuses_what_is_too_large_or_not_there(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct buf b = BUF_INIT;
	const char *path = in_dir("ten");
	assert_int_equal(file_replace(path, "0123456789", 10, NULL), 0);
	buf_puts(&b, "x");
	assert_int_equal(file_slurp(path, 9, &b, &e), -1);
	assert_string_equal(buf_str(&b), "x");
	buf_clear(&b);
	assert_int_equal(file_slurp(path, 10, &b, &e), 0);
	assert_int_equal(b.len, 10);
	assert_int_equal(file_slurp(in_dir("absent"), 10, &b, &e), -1);
	assert_non_null(strstr(e.text, "absent"));
	unlink(path);
	buf_fini(&b);
}

static void what_is_no_file_is_neither_waited_for_nor_replaced(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct buf b = BUF_INIT;
	struct stat st;
	const char *path = in_dir("pipe");
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(file_slurp(path, 10, &b, NULL), 0);
	assert_int_equal(b.len, 0);
	assert_int_equal(file_replace(path, "text", 4, &e), -1);
	assert_non_null(strstr(e.text, "pipe: is a device or pipe"));
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	unlink(path);
	assert_int_equal(file_replace(in_dir(""), "text", 4, &e), -1);
	assert_non_null(strstr(e.text, "a folder"));
	assert_int_equal(file_replace("", "text", 4, &e), -1);
	assert_non_null(strstr(e.text, "name one"));
	buf_fini(&b);
}

/* The check has the answer of the replacement, and writes nothing. */
static void what_cannot_be_replaced_is_known_before(void **state)
{
	(void)state;
	char file[256], fifo[256], folder[256], below[256], absent[256], lost[256], slash[256];
	static char giant[PATH_MAX];
	const char *const all[] = { file, fifo,  folder, below, absent,
				    lost, slash, giant,  "",    "/dev/null" };
	int n_bad = 0;
	snprintf(file, sizeof file, "%s", in_dir("file"));
	snprintf(fifo, sizeof fifo, "%s", in_dir("fifo"));
	snprintf(folder, sizeof folder, "%s", in_dir("folder"));
	snprintf(below, sizeof below, "%s", in_dir("file/below"));
	snprintf(absent, sizeof absent, "%s", in_dir("absent"));
	snprintf(lost, sizeof lost, "%s", in_dir("no/such"));
	snprintf(slash, sizeof slash, "%s", in_dir("new/"));
	memset(giant, 'x', sizeof giant - 1);
	assert_int_equal(
		file_replace(file, "old", 3, NULL) || mkfifo(fifo, 0600) || mkdir(folder, 0700), 0);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct err before = ERR_INIT, after = ERR_INIT;
		int names = names_in_dir(), rc = file_replace_check(all[i], &before);
		assert_int_equal(names_in_dir(), names);
		assert_int_equal(file_replace(all[i], "text", 4, &after), rc);
		assert_int_equal(before.code, after.code);
		assert_string_equal(before.text, after.text);
		n_bad += rc < 0;
	}
	assert_int_equal(n_bad, 8);
	unlink(file);
	unlink(fifo);
	unlink(absent);
	rmdir(folder);
}

static int check_as_somebody_else(const char *path)
{
	struct err e = ERR_INIT;
	int status = 0;
	pid_t pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && seteuid(65534))
			_exit(1);
		_exit(file_replace_check(path, &e) == 0 || e.code != ERR_DENIED);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void a_file_in_a_closed_folder_cannot_be_replaced(void **state)
{
	(void)state;
	assert_int_equal(mkdir(in_dir("closed"), 0500) || chmod(dir, 0711), 0);
	assert_int_equal(check_as_somebody_else(in_dir("closed/file")), 0);
	assert_int_equal(chmod(dir, 0700) || rmdir(in_dir("closed")), 0);
}

/* Opens a name as each kind. Returns 0 if it was opened, otherwise the error code. */
static int opened_as(const char *path, int flags, enum file_kind kind)
{
	struct err e = ERR_INIT;
	int fd = file_open(path, flags, kind, &e);
	if (fd < 0) {
		assert_non_null(strstr(e.text, path));
		return (int)e.code;
	}
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	close(fd);
	return ERR_NONE;
}

static void only_what_the_kind_allows_is_opened(void **state)
{
	(void)state;
	char file[256], link[256], fifo[256], socket_name[256], loop[256], absent[256];
	const struct {
		const char *path;
		int own, regular, text; /* codes */
	} cases[] = {
		{ file, ERR_NONE, ERR_NONE, ERR_NONE },
		{ link, ERR_CORRUPT, ERR_NONE, ERR_NONE },
		{ fifo, ERR_CORRUPT, ERR_USAGE, ERR_NONE },
		{ socket_name, ERR_CORRUPT, ERR_USAGE, ERR_USAGE },
		{ dir, ERR_CORRUPT, ERR_USAGE, ERR_USAGE },
		{ "/dev/zero", ERR_CORRUPT, ERR_USAGE, ERR_USAGE },
		{ "/dev/null", ERR_CORRUPT, ERR_USAGE, ERR_NONE },
		{ absent, ERR_NOTFOUND, ERR_NOTFOUND, ERR_NOTFOUND },
		{ loop, ERR_CORRUPT, ERR_IO, ERR_IO },
	};
	snprintf(file, sizeof file, "%s", in_dir("file"));
	snprintf(link, sizeof link, "%s", in_dir("link"));
	snprintf(fifo, sizeof fifo, "%s", in_dir("fifo"));
	snprintf(socket_name, sizeof socket_name, "%s", in_dir("socket"));
	snprintf(loop, sizeof loop, "%s", in_dir("loop"));
	snprintf(absent, sizeof absent, "%s", in_dir("absent"));
	assert_int_equal(file_replace(file, "text", 4, NULL) || symlink(file, link) ||
				 symlink(loop, loop) || mkfifo(fifo, 0600) ||
				 mknod(socket_name, S_IFSOCK | 0600, 0),
			 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(opened_as(cases[i].path, O_RDONLY, FILE_OWN), cases[i].own);
		assert_int_equal(opened_as(cases[i].path, O_RDONLY, FILE_REGULAR),
				 cases[i].regular);
		assert_int_equal(opened_as(cases[i].path, O_RDONLY, FILE_TEXT), cases[i].text);
	}
	/* Opening for writing does not wait either. */
	assert_int_equal(opened_as(fifo, O_WRONLY | O_APPEND | O_CREAT, FILE_OWN), ERR_CORRUPT);
	assert_int_equal(opened_as(link, O_WRONLY | O_TRUNC | O_CREAT, FILE_OWN), ERR_CORRUPT);
	struct buf b = BUF_INIT;
	assert_int_equal(file_slurp_own(link, 100, &b, NULL), -1);
	assert_int_equal(file_slurp(link, 100, &b, NULL), 0);
	assert_string_equal(buf_str(&b), "text"); /* it was not truncated */
	buf_fini(&b);
	const char *const all[] = { file, link, fifo, socket_name, loop };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		unlink(all[i]);
}

static void a_file_that_may_not_be_opened_is_denied(void **state)
{
	(void)state;
	const char *path = in_dir("secret");
	int status = 0;
	assert_int_equal(file_replace(path, "text", 4, NULL) || chmod(path, 0) || chmod(dir, 0711),
			 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && setuid(65534))
			_exit(1);
		_exit(file_open(path, O_RDONLY, FILE_OWN, NULL) >= 0 ||
		      opened_as(path, O_RDONLY, FILE_OWN) != ERR_DENIED);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(chmod(dir, 0700) || unlink(path), 0);
}

static void a_sparse_giant_is_refused_before_it_takes_memory(void **state)
{
	(void)state;
	const char *path = in_dir("giant");
	struct err e = ERR_INIT;
	struct buf b = BUF_INIT;
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, (off_t)100 << 30), 0);
	close(fd);
	assert_int_equal(file_slurp_own(path, 1 << 30, &b, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_null(b.data);
	assert_int_equal(file_slurp(path, 1 << 30, &b, &e), -1);
	assert_null(b.data);
	unlink(path);
}

static void a_folder_of_one_s_own_is_no_link(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	char link[256];
	snprintf(link, sizeof link, "%s", in_dir("logs"));
	assert_int_equal(file_make_own_dir(in_dir("real"), NULL), 0);
	assert_int_equal(file_make_own_dir(in_dir("real"), NULL), 0);
	assert_int_equal(mode_of(in_dir("real")), 0700);
	assert_int_equal(symlink(in_dir("real"), link), 0);
	assert_int_equal(file_make_own_dir(link, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(e.text, "symbolic link"));
	unlink(link);
	rmdir(in_dir("real"));
}

static void folders_are_made_on_the_way_and_private(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	umask(0);
	assert_int_equal(file_make_dirs(in_dir("a/b/c"), NULL), 0);
	assert_int_equal(file_make_dirs(in_dir("a/b/c"), NULL), 0);
	assert_int_equal(mode_of(in_dir("a")), 0700);
	assert_int_equal(mode_of(in_dir("a/b/c")), 0700);
	assert_int_equal(file_replace(in_dir("a/file"), "x", 1, NULL), 0);
	assert_int_equal(file_make_dirs(in_dir("a/file/d"), &e), -1);
	assert_int_equal(e.code, ERR_IO);
	assert_int_equal(file_make_dirs(in_dir("a/file"), &e), -1);
	assert_non_null(strstr(e.text, "a/file: is not a folder"));
	assert_int_equal(file_make_dirs("", &e), -1);
	assert_int_equal(file_make_dirs("/", &e), 0);
	assert_int_equal(file_make_dirs(in_dir("a//b/"), &e), 0);
	unlink(in_dir("a/file"));
	rmdir(in_dir("a/b/c"));
	rmdir(in_dir("a/b"));
	rmdir(in_dir("a"));
}

static void *feed_in_pieces(void *arg)
{
	int fd = *(int *)arg;
	for (int i = 0; i < 100; i++)
		if (write(fd, "0123456789", 10) != 10)
			return arg;
	close(fd);
	return NULL;
}

static void a_secret_is_its_user_s_alone_and_without_blanks(void **state)
{
	(void)state;
	char out[8];
	struct err e = ERR_INIT;
	const char *path = in_dir("secret");
	assert_int_equal(file_replace(path, " a b\n\n", 6, NULL), 0);
	assert_int_equal(file_read_secret(path, out, sizeof out, &e), 0);
	assert_string_equal(out, "a b");
	assert_int_equal(file_read_secret(path, out, 6, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_int_equal(file_read_secret(path, out, 7, &e), 0);
	chmod(path, 0640);
	assert_int_equal(file_read_secret(path, out, sizeof out, &e), -1);
	assert_int_equal(e.code, ERR_DENIED);
	assert_string_equal(out, "");
	assert_null(strstr(e.text, "a b"));
	unlink(path);
	assert_int_equal(file_read_secret(path, out, sizeof out, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
}

static void full_reads_gather_pieces_and_name_an_early_end(void **state)
{
	(void)state;
	int ends[2];
	pthread_t feeder;
	void *failed;
	char data[1000];
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pthread_create(&feeder, NULL, feed_in_pieces, &ends[1]), 0);
	assert_int_equal(file_read_full(ends[0], data, sizeof data), 0);
	assert_memory_equal(data + 990, "0123456789", 10);
	errno = 0;
	assert_int_equal(file_read_full(ends[0], data, 1), -1);
	assert_int_equal(errno, EPIPE);
	pthread_join(feeder, &failed);
	assert_null(failed);
	close(ends[0]);
}

static void pread_reads_at_its_place(void **state)
{
	(void)state;
	char got[4] = "";
	const char *path = in_dir("ten");
	assert_int_equal(file_replace(path, "0123456789", 10, NULL), 0);
	int fd = open(path, O_RDONLY);
	assert_int_equal(file_pread_full(fd, got, 3, 4), 0);
	assert_string_equal(got, "456");
	assert_int_equal(file_pread_full(fd, got, 3, 8), -1);
	assert_int_equal(file_write_full(fd, "x", 1), -1);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_replaced_file_holds_the_new_text_and_is_private),
		cmocka_unit_test(a_published_file_has_the_mode_of_the_parents_umask),
		cmocka_unit_test(a_replacement_that_fails_leaves_the_old_file_and_nothing_else),
		cmocka_unit_test(a_link_under_the_temporary_name_is_not_followed),
		cmocka_unit_test(a_link_that_leads_nowhere_exists),
		cmocka_unit_test(slurp_refuses_what_is_too_large_or_not_there),
		cmocka_unit_test(what_is_no_file_is_neither_waited_for_nor_replaced),
		cmocka_unit_test(what_cannot_be_replaced_is_known_before),
		cmocka_unit_test(a_file_in_a_closed_folder_cannot_be_replaced),
		cmocka_unit_test(only_what_the_kind_allows_is_opened),
		cmocka_unit_test(a_file_that_may_not_be_opened_is_denied),
		cmocka_unit_test(a_sparse_giant_is_refused_before_it_takes_memory),
		cmocka_unit_test(a_folder_of_one_s_own_is_no_link),
		cmocka_unit_test(folders_are_made_on_the_way_and_private),
		cmocka_unit_test(a_secret_is_its_user_s_alone_and_without_blanks),
		cmocka_unit_test(full_reads_gather_pieces_and_name_an_early_end),
		cmocka_unit_test(pread_reads_at_its_place),
	};
	if (!tmpdir_make(dir, sizeof dir))
		return 1;
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	return rmdir(dir) ? 1 : rc;
}
