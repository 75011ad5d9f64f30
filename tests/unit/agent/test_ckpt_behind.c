/* Files that are written behind their caller: every byte arrives in order, whatever the file system
 * accepts, and every failure of a call is reported. */
#include "agent/engine/ckpt/storage/behind.h"
#include "agent/engine/ckpt/storage/way.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

/* The devices of the tests of the choice; the disks have those from FIRST_DISK on. */
enum { PAGE = 4096, DEVICE = 1, OTHER_DEVICE, TRIED_DEVICE, FIRST_DISK = 100 };

/* --- a disk in memory that can refuse, write short and fail --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	char *data;
	size_t room, size;
	bool flag;          /* O_DIRECT is set */
	bool refuses_flag;  /* fcntl fails */
	bool refuses_write; /* direct writes fail */
	bool refuses_space; /* fallocate fails */
	int64_t direct_bytes, calls, writes, syncs, closes, allocations;
	int64_t fail_at; /* the call, from 1, of write, fsync, ftruncate and close; 0: none */
	int error;
	size_t most;          /* bytes that a write accepts; 0: all */
	int64_t interrupt_at; /* EINTR */
} disk;
static dev_t device = FIRST_DISK; /* that the disk is on; a new disk is on a new one */

/* Replaces the C library's: the descriptor of every test file is of /dev/null. */
int fstat(int fd, struct stat *st)
{
	(void)fd;
	*st = (struct stat){ .st_dev = device };
	return 0;
}

static bool fails(void)
{
	bool now = ++disk.calls == disk.fail_at;
	errno = disk.error;
	return now;
}

static ssize_t put(const void *data, size_t n, size_t at)
{
	if (fails())
		return -1;
	errno = EINTR;
	if (disk.calls == disk.interrupt_at)
		return -1;
	errno = EINVAL;
	if (disk.flag && (disk.refuses_write || (uintptr_t)data % PAGE || n % PAGE || at % PAGE))
		return -1;
	if (disk.most && n > disk.most)
		n = disk.most;
	assert_true(at <= disk.room && n <= disk.room - at);
	memcpy(disk.data + at, data, n);
	disk.size = at + n > disk.size ? at + n : disk.size;
	disk.direct_bytes += disk.flag ? (int64_t)n : 0;
	disk.writes++;
	return (ssize_t)n;
}

static ssize_t disk_pwrite(int fd, const void *data, size_t n, off_t at)
{
	(void)fd;
	pthread_mutex_lock(&lock);
	ssize_t rc = put(data, n, (size_t)at);
	int saved = errno;
	pthread_mutex_unlock(&lock);
	errno = saved;
	return rc;
}

static ssize_t disk_write(int fd, const void *data, size_t n)
{
	return disk_pwrite(fd, data, n, (off_t)disk.size);
}

static int disk_fsync(int fd)
{
	(void)fd;
	disk.syncs++;
	return fails() ? -1 : 0;
}

static int disk_close(int fd)
{
	disk.closes++;
	return close(fd) || fails() ? -1 : 0;
}

static int disk_direct(int fd, bool on)
{
	(void)fd;
	errno = EINVAL;
	pthread_mutex_lock(&lock);
	bool refused = on && disk.refuses_flag;
	disk.flag = refused ? disk.flag : on;
	pthread_mutex_unlock(&lock);
	return refused ? -1 : 0;
}

static int disk_allocate(int fd, int mode, off_t at, off_t n)
{
	(void)fd;
	assert_int_equal(mode, 0);
	if (disk.refuses_space)
		n /= 2; /* a full ext4 has made the file longer when it fails */
	pthread_mutex_lock(&lock);
	disk.size = (size_t)(at + n) > disk.size ? (size_t)(at + n) : disk.size;
	disk.allocations++;
	pthread_mutex_unlock(&lock);
	errno = ENOSPC;
	return disk.refuses_space ? -1 : 0;
}

static int disk_truncate(int fd, off_t size)
{
	(void)fd;
	disk.size = (size_t)size;
	return fails() ? -1 : 0;
}

static const struct ckpt_io disk_io = { .write = disk_write,
					.fsync = disk_fsync,
					.close = disk_close,
					.pwrite = disk_pwrite,
					.direct = disk_direct,
					.allocate = disk_allocate,
					.truncate = disk_truncate };

/* --- a file --- */

static const size_t large = 2 * (size_t)BEHIND_TRIAL + 3 * BEHIND_BLOCK + 5 * PAGE + 17;
static char *bytes;

static int setup(void **state)
{
	(void)state;
	disk.room = large;
	disk.data = malloc(large);
	bytes = malloc(large);
	assert_non_null(disk.data);
	assert_non_null(bytes);
	for (size_t i = 0; i < large; i++)
		bytes[i] = (char)((i * 2654435761u) >> 11 ^ i >> 22);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(disk.data);
	free(bytes);
	return 0;
}

static void new_disk(void)
{
	char *data = disk.data;
	size_t room = disk.room;
	memset(&disk, 0, sizeof disk);
	disk.data = data;
	disk.room = room;
	device++;
}

/* Writes n bytes in pieces of several sizes. */
static int write_file(size_t n, struct err *e)
{
	static const size_t pieces[] = { 8, 1 << 20, 100003, 3 << 20, 5 << 20 };
	struct ckpt_behind *b;
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(ckpt_behind_open(&disk_io, fd, "dir/file", &b, e), 0);
	for (size_t at = 0, i = 0; at < n; i++) {
		size_t piece = pieces[i % 5] < n - at ? pieces[i % 5] : n - at;
		if (ckpt_behind_write(b, bytes + at, piece, e)) {
			ckpt_behind_abandon(b);
			return -1;
		}
		at += piece;
	}
	return ckpt_behind_finish(b, e);
}

static void check_file(size_t n)
{
	struct err e = ERR_INIT;
	disk.size = 0;
	memset(disk.data, 0, n);
	if (write_file(n, &e))
		fail_msg("%zu bytes: %s", n, e.text);
	assert_int_equal(disk.size, n);
	assert_memory_equal(disk.data, bytes, n);
	assert_int_equal(disk.closes, 1);
	assert_true(disk.syncs > 0);
}

static void a_small_file_is_one_ordinary_write(void **state)
{
	(void)state;
	new_disk();
	check_file(3 << 20);
	assert_int_equal(disk.calls, 3); /* write, fsync, close */
	assert_int_equal(disk.direct_bytes, 0);
	assert_int_equal(disk.allocations, 0);
}

static void every_length_arrives_whole(void **state)
{
	static const size_t lengths[] = { 0,
					  1,
					  BEHIND_BLOCK - 1,
					  BEHIND_BLOCK,
					  BEHIND_BLOCK + 1,
					  BEHIND_BLOCK + PAGE,
					  BEHIND_BLOCK * BEHIND_BLOCKS,
					  BEHIND_BLOCK * BEHIND_BLOCKS + PAGE + 1 };
	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		new_disk();
		check_file(lengths[i]);
	}
	new_disk();
	check_file(large);
}

static void a_large_file_is_written_directly_but_for_its_end(void **state)
{
	(void)state;
	new_disk();
	size_t n = BEHIND_TRIAL - BEHIND_BLOCK + PAGE + 100;
	check_file(n);
	assert_int_equal(disk.direct_bytes, n - 100);
	assert_true(disk.allocations > 0);
	/* Space cannot be allocated ahead, or not all of it: it works without. */
	new_disk();
	disk.refuses_space = true;
	check_file(n);
	assert_int_equal(disk.direct_bytes, n - 100);
}

static void the_first_file_tries_both_ways(void **state)
{
	(void)state;
	new_disk();
	check_file(large);
	/* One trial in each way, each with a sync of its own, and one at the end. */
	assert_int_equal(disk.syncs, 3);
	assert_true(disk.direct_bytes >= BEHIND_TRIAL);
	assert_true(disk.direct_bytes <= (int64_t)large - BEHIND_TRIAL);
}

static void a_file_system_that_refuses_gets_ordinary_writes(void **state)
{
	(void)state;
	for (int where = 0; where < 2; where++) {
		new_disk();
		disk.refuses_flag = where == 0;
		disk.refuses_write = where == 1;
		check_file(large);
		assert_int_equal(disk.direct_bytes, 0);
		/* It is not asked again. */
		disk.closes = disk.writes = disk.calls = 0;
		check_file(large);
		/* the blocks, the aligned part of the last one, and the rest */
		assert_int_equal(disk.writes, large / BEHIND_BLOCK + 2);
		assert_int_equal(disk.calls, disk.writes + 2); /* fsync, close */
	}
}

static void short_and_interrupted_writes_are_continued(void **state)
{
	(void)state;
	for (size_t most = 100001; most < BEHIND_BLOCK; most = most * 3 / PAGE * PAGE) {
		new_disk();
		disk.most = most;
		check_file(BEHIND_BLOCK * 5 + 77);
	}
	for (int64_t at = 1; at < 9; at++) {
		new_disk();
		disk.interrupt_at = at;
		check_file(BEHIND_BLOCK * 5 + 77);
	}
}

static void every_failing_call_is_reported(void **state)
{
	static const int errors[] = { EIO, ENOSPC };
	(void)state;
	new_disk();
	check_file(large);
	int64_t calls = disk.calls;
	assert_true(calls > 15);
	for (int64_t k = 1; k <= calls; k++) {
		struct err e = ERR_INIT;
		new_disk();
		disk.fail_at = k;
		disk.error = errors[k % 2];
		if (!write_file(large, &e))
			fail_msg("the failure of call %d was lost", (int)k);
		assert_int_equal(e.code, errors[k % 2] == ENOSPC ? ERR_FULL : ERR_IO);
		assert_int_equal(strncmp(e.text, "dir/file: cannot ", 17), 0);
		assert_non_null(strstr(e.text, strerror(errors[k % 2])));
		assert_int_equal(disk.closes, 1);
	}
}

static void an_abandoned_file_is_closed(void **state)
{
	(void)state;
	for (size_t n = PAGE; n < BEHIND_TRIAL; n *= 40) {
		struct err e = ERR_INIT;
		struct ckpt_behind *b;
		new_disk();
		int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
		assert_int_equal(ckpt_behind_open(&disk_io, fd, "dir/file", &b, &e), 0);
		assert_int_equal(ckpt_behind_write(b, bytes, n, &e), 0);
		ckpt_behind_abandon(b);
		assert_int_equal(disk.closes, 1);
		assert_int_equal(disk.syncs, 0);
	}
}

/* --- the choice --- */

static void the_clearly_faster_way_is_chosen(void **state)
{
	(void)state;
	assert_int_equal(ckpt_way_choose(DEVICE), CKPT_WAY_DIRECT);
	ckpt_way_learn(DEVICE, CKPT_WAY_DIRECT, 1e9);
	ckpt_way_learn(DEVICE, CKPT_WAY_BUFFERED, 1.1e9);
	assert_int_equal(ckpt_way_choose(DEVICE), CKPT_WAY_DIRECT);
	for (int i = 0; i < 8; i++)
		ckpt_way_learn(DEVICE, CKPT_WAY_BUFFERED, 2e9);
	assert_int_equal(ckpt_way_choose(DEVICE), CKPT_WAY_BUFFERED);
	assert_int_equal(ckpt_way_choose(OTHER_DEVICE), CKPT_WAY_DIRECT);
	for (int i = 0; i < 8; i++)
		ckpt_way_learn(DEVICE, CKPT_WAY_DIRECT, 2e9);
	assert_int_equal(ckpt_way_choose(DEVICE), CKPT_WAY_DIRECT);
	ckpt_way_refuse(DEVICE);
	assert_int_equal(ckpt_way_choose(DEVICE), CKPT_WAY_BUFFERED);
	assert_false(ckpt_way_tries(DEVICE));
}

static void trials_are_repeated(void **state)
{
	int tries = 0;
	(void)state;
	for (int i = 0; i < 160; i++)
		tries += ckpt_way_tries(TRIED_DEVICE);
	assert_int_equal(tries, 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_small_file_is_one_ordinary_write),
		cmocka_unit_test(every_length_arrives_whole),
		cmocka_unit_test(a_large_file_is_written_directly_but_for_its_end),
		cmocka_unit_test(the_first_file_tries_both_ways),
		cmocka_unit_test(a_file_system_that_refuses_gets_ordinary_writes),
		cmocka_unit_test(short_and_interrupted_writes_are_continued),
		cmocka_unit_test(every_failing_call_is_reported),
		cmocka_unit_test(an_abandoned_file_is_closed),
		cmocka_unit_test(the_clearly_faster_way_is_chosen),
		cmocka_unit_test(trials_are_repeated),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
