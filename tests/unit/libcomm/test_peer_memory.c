/* Reading a neighbour's memory: windows of comm_alloc, process_vm_readv, and the cases where either
 * is unavailable. */
#include "tests/unit/libcomm/ranks.h"

#include "libcomm/shm/peer_memory.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>

#include <cmocka.h>

enum { KIB = 1024, MIB = 1024 * 1024, ROUNDS = 20 };

static int alloc(struct comm *w, size_t bytes, char **out)
{
	struct err e = ERR_INIT;
	void *p = NULL;
	if (comm_alloc(w, bytes, &p, &e) < 0)
		fprintf(stderr, "%s\n", e.text);
	*out = p;
	return p ? 0 : -1;
}

/* --- Windows --- */

static int look_at_windows(struct comm *w, void *arg)
{
	(void)arg;
	static const size_t sizes[] = { 0, 1, 4096, 300000, 5 * MIB + 1 };
	struct remote_buffer all[8], mine;
	struct err e = ERR_INIT;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		char *p;
		RANK_CHECK(alloc(w, sizes[i], &p) == 0, "no window of %zu bytes", sizes[i]);
		RANK_CHECK((uintptr_t)p % 4096 == 0, "not on a page");
		for (size_t k = 0; k < sizes[i]; k++)
			RANK_CHECK(p[k] == 0, "not zeroed");
		if (sizes[i])
			p[sizes[i] - 1] = (char)(comm_rank(w) + 1);
		mine = peer_memory_describe(w, p, sizes[i]);
		RANK_CHECK(mine.shared_buffer, "no span");
		RANK_CHECK(!peer_memory_describe(w, p, mine.size + 1).shared_buffer,
			   "a span beyond the window");
		RANK_CHECK(comm_all_gather(w, &mine, all, sizeof mine, COMM_U8, &e) == 0, "%s",
			   e.text);
		int next = (comm_rank(w) + 1) % comm_size(w);
		char *there = comm_peer_memory_map(w, next, &all[next], sizes[i]);
		RANK_CHECK(there, "not mapped");
		RANK_CHECK(!sizes[i] || there[sizes[i] - 1] == next + 1, "another's bytes");
		RANK_CHECK(comm_peer_memory_map(w, next, &all[next], sizes[i]) == there,
			   "mapped twice");
		RANK_CHECK(!comm_peer_memory_map(w, next, &all[next], all[next].size + 1),
			   "mapped more than there is");
		RANK_CHECK(comm_barrier(w, &e) == 0, "%s", e.text);
		comm_free(w, p);
		RANK_CHECK(comm_barrier(w, &e) == 0, "%s", e.text);
		RANK_CHECK(comm_shared_buffer_is_freed(there - all[next].offset, all[next].size),
			   "its end is not seen");
		/* A rank that still reads, in an operation that fails, survives. */
		RANK_CHECK(!sizes[i] || there[sizes[i] - 1] == 0, "the pages were not given back");
	}
	comm_free(w, NULL);
	comm_free(w, &mine); /* not allocated by comm_alloc */
	return 0;
}

static void shared_buffers_are_shared_and_freed(void **state)
{
	(void)state;
	struct ranks r = { .n = 3, .backend = "shm", .fn = look_at_windows };
	assert_int_equal(ranks_run(&r), 0);
}

static int lie_about_a_window(struct comm *w, void *arg)
{
	(void)arg;
	struct err e = ERR_INIT;
	char *p;
	RANK_CHECK(alloc(w, 8192, &p) == 0, "no window");
	struct remote_buffer mine = peer_memory_describe(w, p, 8192);
	struct remote_buffer all[2];
	RANK_CHECK(comm_all_gather(w, &mine, all, sizeof mine, COMM_U8, &e) == 0, "%s", e.text);
	pid_t pid = w->world->peers[1 - comm_rank(w)].pid;
	struct remote_buffer s = all[1 - comm_rank(w)];
	struct remote_buffer wrong[] = { s, s, s, s, s };
	wrong[0].inode++;
	wrong[1].size += 4096;
	wrong[2].offset = s.size + 1;
	wrong[3].fd = 9999;
	wrong[4].size = (uint64_t)-4096;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		RANK_CHECK(!comm_shared_buffer_map(pid, &wrong[i]), "wrong span %zu is mapped", i);
	return comm_barrier(w, &e) < 0;
}

static void a_wrong_remote_buffer_is_refused(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .backend = "shm", .fn = lie_about_a_window };
	assert_int_equal(ranks_run(&r), 0);
}

static int window_views(void)
{
	int n = 0;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && fgets(line, sizeof line, f))
		n += strstr(line, "muster-shared-buffer") != NULL;
	if (f)
		fclose(f);
	return n;
}

/* New windows replace old ones: the old data is never seen, and no mapping is left. */
static int change_windows(struct comm *w, void *arg)
{
	(void)arg;
	enum { COUNT = 100 * KIB };
	struct err e = ERR_INIT;
	int mappings = 0;
	for (int round = 0; round < ROUNDS; round++) {
		char *in, *out;
		RANK_CHECK(alloc(w, COUNT * 4, &in) == 0 && alloc(w, COUNT * 4, &out) == 0,
			   "no window");
		for (int k = 0; k < COUNT; k++)
			((int32_t *)(void *)in)[k] = k + round + comm_rank(w);
		RANK_CHECK(comm_all_reduce(w, in, out, COUNT, COMM_I32, COMM_MAX, &e) == 0, "%s",
			   e.text);
		for (int k = 0; k < COUNT; k++)
			RANK_CHECK(((int32_t *)(void *)out)[k] == k + round + comm_size(w) - 1,
				   "round %d, %d", round, k);
		comm_free(w, in);
		comm_free(w, out);
		mappings = round == 2 ? window_views() : mappings;
		RANK_CHECK(round < 2 || window_views() <= mappings + 2 * comm_size(w),
			   "%d mappings, then %d", mappings, window_views());
	}
	return 0;
}

static void new_shared_buffers_are_not_taken_for_old_ones(void **state)
{
	(void)state;
	struct ranks r = { .n = 4, .backend = "shm", .algorithm = "readers", .fn = change_windows };
	assert_int_equal(ranks_run(&r), 0);
}

static int alloc_alone(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	void *p = NULL;
	char *q;
	(void)arg;
	RANK_CHECK(comm_alloc(w, (size_t)1 << 46, &p, &e) < 0 && e.code == ERR_NOMEM && !p,
		   "64 TiB: %s", e.text);
	RANK_CHECK(alloc(w, MIB, &q) == 0, "no memory");
	RANK_CHECK(q[0] == 0 && q[MIB - 1] == 0, "not zeroed");
	q[MIB - 1] = 1;
	RANK_CHECK(comm_all_reduce(w, q, q, MIB, COMM_U8, COMM_SUM, &e) == 0, "%s", e.text);
	RANK_CHECK(q[MIB - 1] == comm_size(w), "a wrong sum");
	return 0; /* freed with the world */
}

static void memory_without_peers_is_ordinary_memory(void **state)
{
	(void)state;
	struct ranks one = { .n = 1, .fn = alloc_alone };
	struct ranks tcp = { .n = 2, .backend = "tcp", .fn = alloc_alone };
	struct ranks shm = { .n = 2, .backend = "shm", .fn = alloc_alone };
	assert_int_equal(ranks_run(&one), 0);
	assert_int_equal(ranks_run(&tcp), 0);
	assert_int_equal(ranks_run(&shm), 0);
}

/* --- Private memory --- */

static int forbid_reading(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
		       ? -1
		       : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* It is enough that one rank may not read. */
static int forbid_in_one(const struct ranks *r, int rank)
{
	(void)r;
	return rank == 1 ? forbid_reading() : 0;
}

/* Every operation that readers implement, in private memory or in windows; the results are
 * known. */
static int run_operations(struct comm *w, int32_t *in, int32_t *out, size_t n)
{
	struct err e = ERR_INIT;
	int size = comm_size(w), me = comm_rank(w);
	size_t all = n * (size_t)size;
	for (size_t k = 0; k < all; k++)
		in[k] = (int32_t)(k % 1000) + 1000 * me;
	int32_t sum = 1000 * size * (size - 1) / 2;
	RANK_CHECK(comm_all_reduce(w, in, out, n, COMM_I32, COMM_SUM, &e) == 0, "%s", e.text);
	for (size_t k = 0; k < n; k++)
		RANK_CHECK(out[k] == (int32_t)(k % 1000) * size + sum, "all_reduce: %zu", k);
	RANK_CHECK(comm_reduce(w, in, out, n, COMM_I32, COMM_MAX, size - 1, &e) == 0, "%s", e.text);
	for (size_t k = 0; me == size - 1 && k < n; k++)
		RANK_CHECK(out[k] == (int32_t)(k % 1000) + 1000 * (size - 1), "reduce: %zu", k);
	RANK_CHECK(comm_reduce_scatter(w, in, out, n, COMM_I32, COMM_SUM, &e) == 0, "%s", e.text);
	for (size_t k = 0; k < n; k++)
		RANK_CHECK(out[k] == (int32_t)((k + n * (size_t)me) % 1000) * size + sum,
			   "reduce_scatter: %zu", k);
	RANK_CHECK(comm_all_gather(w, in, out, n, COMM_I32, &e) == 0, "%s", e.text);
	for (size_t k = 0; k < all; k++)
		RANK_CHECK(out[k] == (int32_t)(k % n % 1000) + 1000 * (int32_t)(k / n),
			   "all_gather: %zu", k);
	RANK_CHECK(comm_all_to_all(w, in, out, n, COMM_I32, &e) == 0, "%s", e.text);
	for (size_t k = 0; k < all; k++)
		RANK_CHECK(out[k] == (int32_t)((k % n + n * (size_t)me) % 1000) +
					     1000 * (int32_t)(k / n),
			   "all_to_all: %zu", k);
	for (int root = 0; root < size; root += size - 1) {
		RANK_CHECK(comm_gather(w, in, out, n, COMM_I32, root, &e) == 0, "%s", e.text);
		for (size_t k = 0; me == root && k < all; k++)
			RANK_CHECK(out[k] == (int32_t)(k % n % 1000) + 1000 * (int32_t)(k / n),
				   "gather: %zu", k);
		RANK_CHECK(comm_scatter(w, in, out, n, COMM_I32, root, &e) == 0, "%s", e.text);
		for (size_t k = 0; k < n; k++)
			RANK_CHECK(out[k] == (int32_t)((k + n * (size_t)me) % 1000) + 1000 * root,
				   "scatter: %zu", k);
	}
	RANK_CHECK(comm_broadcast(w, in, n, COMM_I32, 0, &e) == 0, "%s", e.text);
	for (size_t k = 0; k < n; k++)
		RANK_CHECK(in[k] == (int32_t)(k % 1000), "broadcast: %zu", k);
	return 0;
}

static int operate_everywhere(struct comm *w, void *arg)
{
	static const size_t counts[] = { 1, 700, 9001, 300007 };
	RANK_CHECK(comm_cma_works(w) == *(const bool *)arg, "the ranks' memory %s",
		   comm_cma_works(w) ? "can be read" : "cannot be read");
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		size_t room = counts[i] * (size_t)comm_size(w) * sizeof(int32_t);
		char *in, *out, *in2 = malloc(room), *out2 = malloc(room);
		RANK_CHECK(in2 && out2 && alloc(w, room, &in) == 0 && alloc(w, room, &out) == 0,
			   "no memory");
		int32_t *a = (int32_t *)(void *)in, *b = (int32_t *)(void *)out;
		int32_t *c = (int32_t *)(void *)in2, *d = (int32_t *)(void *)out2;
		/* Some ranks' memory is shared and some is not. One private buffer decides. */
		bool mine = comm_rank(w) % 2;
		RANK_CHECK(run_operations(w, a, b, counts[i]) == 0, "in windows, %zu", counts[i]);
		RANK_CHECK(run_operations(w, c, d, counts[i]) == 0, "in private memory, %zu",
			   counts[i]);
		RANK_CHECK(run_operations(w, mine ? a : c, mine ? b : d, counts[i]) == 0,
			   "mixed, %zu", counts[i]);
		RANK_CHECK(run_operations(w, a, b, counts[i]) == 0, "in windows again, %zu",
			   counts[i]);
		free(in2);
		free(out2);
	}
	return 0;
}

static void results_do_not_depend_on_where_buffers_are(void **state)
{
	(void)state;
	static const char *const algorithms[] = { "readers", "slots", NULL };
	for (int may = 0; may < 2; may++)
		for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
			bool works = may;
			struct ranks r = { .n = 3,
					   .backend = "shm",
					   .algorithm = algorithms[i],
					   .timeout_s = PATIENT_WAIT_S,
					   .enter = may ? NULL : forbid_in_one,
					   .fn = operate_everywhere,
					   .arg = &works };
			assert_int_equal(ranks_run(&r), 0);
		}
}

/* --- What stops a reader --- */

/* Rank 1 loses the right to read after the world is open. */
static int lose_the_right(struct comm *w, void *arg)
{
	(void)arg;
	enum { COUNT = 300000 };
	struct err e = ERR_INIT;
	float *in = calloc(COUNT, sizeof *in), *out = calloc(COUNT, sizeof *out);
	RANK_CHECK(in && out, "no memory");
	RANK_CHECK(comm_rank(w) != 1 || forbid_reading() == 0, "no filter");
	RANK_CHECK(comm_all_reduce(w, in, out, COUNT, COMM_F32, COMM_SUM, &e) < 0,
		   "read what may not be read");
	RANK_CHECK(e.code == ERR_PEER && strstr(e.text, "cannot be read"), "%s: %s",
		   err_word(e.code), e.text);
	free(in);
	free(out);
	return 0;
}

static void a_lost_permission_is_an_error_on_all_ranks(void **state)
{
	(void)state;
	struct ranks r = { .n = 3,
			   .backend = "shm",
			   .algorithm = "readers",
			   .timeout_s = PATIENT_WAIT_S,
			   .fn = lose_the_right };
	assert_int_equal(ranks_run(&r), 0);
}

static int read_the_dead(struct comm *w, void *arg)
{
	(void)arg;
	struct err e = ERR_INIT;
	struct remote_buffer mine = peer_memory_describe(w, &e, sizeof e), all[2];
	char byte;
	RANK_CHECK(comm_all_gather(w, &mine, all, sizeof mine, COMM_U8, &e) == 0, "%s", e.text);
	if (comm_rank(w) == 1) {
		comm_barrier(w, &e);
		pause();
	}
	struct remote_buffer nowhere = { .address = 4096 };
	RANK_CHECK(comm_peer_memory_read(w, 1, &nowhere, 0, &byte, 1, &e) < 0 && e.code == ERR_PEER,
		   "read unmapped memory");
	RANK_CHECK(strstr(e.text, "rank 1 (world rank 1") && strstr(e.text, "cannot be read"), "%s",
		   e.text);
	RANK_CHECK(comm_peer_memory_read(w, 1, &all[1], 0, &byte, 1, &e) == 0, "%s", e.text);
	RANK_CHECK(comm_barrier(w, &e) == 0, "%s", e.text);
	kill(w->world->peers[1].pid, SIGKILL);
	while (comm_peer_memory_read(w, 1, &all[1], 0, &byte, 1, &e) == 0)
		sched_yield();
	RANK_CHECK(e.code == ERR_PEER && strstr(e.text, "rank 1 (world rank 1"), "%s", e.text);
	return 0;
}

static void unreadable_memory_names_its_rank(void **state)
{
	(void)state;
	struct ranks r = {
		.n = 2, .backend = "shm", .timeout_s = PATIENT_WAIT_S, .fn = read_the_dead
	};
	ranks_start(&r);
	assert_int_equal(ranks_end(&r, 0), 0);
	assert_int_equal(ranks_end(&r, 1), -SIGKILL);
	munmap(r.board, sizeof *r.board);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_buffers_are_shared_and_freed),
		cmocka_unit_test(a_wrong_remote_buffer_is_refused),
		cmocka_unit_test(new_shared_buffers_are_not_taken_for_old_ones),
		cmocka_unit_test(memory_without_peers_is_ordinary_memory),
		cmocka_unit_test(results_do_not_depend_on_where_buffers_are),
		cmocka_unit_test(a_lost_permission_is_an_error_on_all_ranks),
		cmocka_unit_test(unreadable_memory_names_its_rank),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
