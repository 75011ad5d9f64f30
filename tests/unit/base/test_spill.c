/* Tests memory in a file: it is zero, private to its owner and without a name, and it is refused
 * if there is no room. */
#include "base/spill.h"
#include "tests/unit/tmpdir.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static int names_in(const char *path)
{
	int n = 0;
	DIR *d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void it_is_zero_and_keeps_what_is_written(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	size_t bytes = 3 << 20;
	void *p, *q;
	assert_int_equal(spill_open(dir, "a", bytes, &p, &e), 0);
	assert_int_equal(spill_open(dir, "b", bytes, &q, &e), 0);
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(((char *)p)[i], 0);
	memset(p, 5, bytes);
	assert_int_equal(((char *)q)[bytes - 1], 0);
	assert_int_equal(((char *)p)[bytes - 1], 5);
	assert_int_equal(names_in(dir), 0);
	spill_close(p, bytes);
	spill_close(q, bytes);
	spill_close(NULL, bytes);
}

static void zero_bytes_can_be_opened_and_closed(void **state)
{
	(void)state;
	void *p = NULL;
	assert_int_equal(spill_open(dir, "a", 0, &p, NULL), 0);
	spill_close(p, 0);
}

static void tmpdir_comes_first(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	void *p;
	assert_int_equal(spill_open("/nowhere", "moments", 64, &p, &e), -1);
	assert_int_equal(e.code, ERR_IO);
	assert_non_null(strstr(e.text, "moments"));
	assert_non_null(strstr(e.text, "/nowhere"));
	setenv("TMPDIR", dir, 1);
	assert_int_equal(spill_open("/nowhere", "moments", 64, &p, &e), 0);
	spill_close(p, 64);
	unsetenv("TMPDIR");
}

/* A file size limit has the effect of a full disk. */
static void no_room_is_an_error_and_leaves_nothing(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct rlimit was, little;
	void *p;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	little = (struct rlimit){ 4096, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	int rc = spill_open(dir, "moments", 1 << 20, &p, &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, ERR_IO);
	assert_int_equal(names_in(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_zero_and_keeps_what_is_written),
		cmocka_unit_test(zero_bytes_can_be_opened_and_closed),
		cmocka_unit_test(tmpdir_comes_first),
		cmocka_unit_test(no_room_is_an_error_and_leaves_nothing),
	};
	unsetenv("TMPDIR");
	if (!tmpdir_make(dir, sizeof dir))
		return 1;
	int rc = cmocka_run_group_tests(tests, NULL, NULL);
	return rmdir(dir) ? 1 : rc;
}
