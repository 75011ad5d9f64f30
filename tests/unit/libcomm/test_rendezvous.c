/* Messages between ranks of one host: short ones go through the ring, long ones are copied once,
 * and faults stop them. */
#include "tests/unit/libcomm/ranks.h"

#include "libcomm/p2p/exchange.h"
#include "libcomm/shm/futex.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>

#include <cmocka.h>

enum { KIB = 1024, MIB = 1024 * 1024, LONGEST = 4 * MIB + 7 };

/* The lengths are around those at which messages change their path, and between them. */
static const size_t sizes[] = { 0,           1,         4095,          8 * KIB - 1,   8 * KIB,
				8 * KIB + 1, 256 * KIB, 256 * KIB + 1, 512 * KIB + 1, 1 * MIB + 3,
				LONGEST };

enum { SIZES = sizeof sizes / sizeof *sizes };

static char pattern(size_t i, int from, int round)
{
	return (char)(i * 7 + i / 4096 + (unsigned)from * 31 + (unsigned)round * 13);
}

static void fill_data(char *data, size_t bytes, int from, int round)
{
	for (size_t i = 0; i < bytes; i++)
		data[i] = pattern(i, from, round);
}

static size_t wrong(const char *data, size_t bytes, int from, int round)
{
	size_t bad = 0;
	for (size_t i = 0; i < bytes; i++)
		bad += data[i] != pattern(i, from, round);
	return bad;
}

static char *room(struct comm *w, bool shared_buffer)
{
	void *p = NULL;
	struct err e = ERR_INIT;
	if (!shared_buffer)
		return malloc(LONGEST);
	return comm_alloc(w, LONGEST, &p, &e) == 0 ? p : NULL;
}

struct kinds {
	bool window_in, window_out;
};

/* Sends all sizes to the next rank and receives all from the previous one, in one call; then the
 * other direction in the next call. */
static int all_to_neighbours(struct comm *w, void *arg)
{
	const struct kinds *k = arg;
	struct err e = ERR_INIT;
	int n = comm_size(w), me = comm_rank(w);
	struct comm_p2p ops[2 * SIZES];
	char *in[SIZES], *out[SIZES];
	for (int i = 0; i < SIZES; i++) {
		in[i] = room(w, k->window_in);
		out[i] = room(w, k->window_out);
		RANK_CHECK(in[i] && out[i], "no room");
	}
	for (int round = 0; round < 3; round++) {
		int step = round % 2 ? n - 1 : 1, to = (me + step) % n, from = (me + n - step) % n;
		for (int i = 0; i < SIZES; i++) {
			fill_data(in[i], sizes[i], me, round + i);
			ops[i] = (struct comm_p2p){ true, { in[i] }, sizes[i], COMM_U8, to };
			ops[SIZES + i] =
				(struct comm_p2p){ false, { out[i] }, sizes[i], COMM_U8, from };
		}
		RANK_CHECK(comm_batch_send_recv(w, ops, 2 * SIZES, &e) == 0, "%s", e.text);
		for (int i = 0; i < SIZES; i++)
			RANK_CHECK(wrong(out[i], sizes[i], from, round + i) == 0,
				   "round %d, %zu bytes are wrong", round, sizes[i]);
	}
	for (int i = 0; i < SIZES; i++) {
		k->window_in ? comm_free(w, in[i]) : free(in[i]);
		k->window_out ? comm_free(w, out[i]) : free(out[i]);
	}
	return 0;
}

static void long_messages_arrive(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		for (int n = 2; n <= 4; n++) {
			struct kinds k = { i & 1, i & 2 };
			struct ranks r = { .n = n,
					   .fn = all_to_neighbours,
					   .arg = &k,
					   .timeout_s = PATIENT_WAIT_S };
			assert_int_equal(ranks_run(&r), 0);
		}
}

static int one_way(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	char *data = malloc(LONGEST);
	(void)arg;
	for (int round = 0; round < 4; round++)
		for (int i = 0; i < SIZES; i++)
			if (comm_rank(w) == 0) {
				fill_data(data, sizes[i], 0, round);
				RANK_CHECK(comm_send(w, data, sizes[i], COMM_U8, 1, &e) == 0, "%s",
					   e.text);
				memset(data, 0, sizes[i]); /* allowed: the message has left */
			} else {
				RANK_CHECK(comm_recv(w, data, sizes[i], COMM_U8, 0, &e) == 0, "%s",
					   e.text);
				RANK_CHECK(wrong(data, sizes[i], 0, round) == 0,
					   "%zu bytes are wrong", sizes[i]);
			}
	free(data);
	return 0;
}

static void a_sent_buffer_is_free(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .fn = one_way, .timeout_s = PATIENT_WAIT_S };
	assert_int_equal(ranks_run(&r), 0);
}

enum { SHORTEST = 300, AT_ONCE = 7 };

/* Rank 0 runs ahead, so a message finds the ring either empty or not. */
static int short_ones(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	char data[AT_ONCE][SHORTEST];
	struct comm_p2p ops[AT_ONCE];
	bool send = comm_rank(w) == 0;
	(void)arg;
	for (int round = 0; round < 20; round++)
		for (int bytes = 0; bytes < SHORTEST; bytes++) {
			int n = 1 + (bytes + round) % AT_ONCE;
			for (int i = 0; i < n; i++) {
				fill_data(data[i], (size_t)bytes, send ? 0 : 1, round + i);
				ops[i] = (struct comm_p2p){
					send, { data[i] }, (size_t)bytes, COMM_U8, send
				};
			}
			RANK_CHECK(comm_batch_send_recv(w, ops, n, &e) == 0, "%s", e.text);
			for (int i = 0; i < n && !send; i++)
				RANK_CHECK(wrong(data[i], (size_t)bytes, 0, round + i) == 0,
					   "%d bytes are wrong", bytes);
		}
	return 0;
}

/* The sender overwrites the last bytes while the receiver reads them. */
static int counted(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	uint64_t word[12];
	(void)arg;
	for (uint64_t i = 0; i < 200000; i++) {
		for (int k = 0; k < 12; k++)
			word[k] = comm_rank(w) ? 0 : i;
		int rc = comm_rank(w) ? comm_recv(w, word, 12, COMM_I64, 0, &e)
				      : comm_send(w, word, 12, COMM_I64, 1, &e);
		RANK_CHECK(rc == 0, "%s", e.text);
		for (int k = 0; k < 12; k++)
			RANK_CHECK(word[k] == i, "message %d has %d in word %d", (int)i,
				   (int)word[k], k);
	}
	return 0;
}

static void short_messages_keep_their_order(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .fn = counted, .timeout_s = PATIENT_WAIT_S };
	assert_int_equal(ranks_run(&r), 0);
}

/* The writer has started to announce the next bytes while the reader still takes these. */
static void last_bytes_of_another_head_are_ignored(void **state)
{
	(void)state;
	enum { RING = 64 * KIB };
	struct ring *r = aligned_alloc(128, sizeof *r + RING);
	struct seg_line line = { 0 };
	struct err e = ERR_INIT;
	uint64_t in = 0x1234567, out = 0;
	struct iovec from = { &in, sizeof in }, to = { &out, sizeof out };
	memset(r, 0, sizeof *r);
	struct endpoint l = {
		.ring = { .tx = r, .rx = r, .line = &line, .bytes = RING, .wakeup = -1 }
	};
	assert_int_equal(comm_ring_transport.put(&l, 0, &from, 1, &e), sizeof in);
	atomic_store(&r->last_end, atomic_load(&r->last_end) + (sizeof in << 8));
	atomic_store(&r->last[0], 99);
	assert_int_equal(comm_ring_transport.get(&l, 0, &to, 1, &e), sizeof out);
	assert_int_equal(out, in);
	assert_int_equal(comm_ring_transport.get(&l, 0, &to, 1, &e), 0);
	free(r);
}

static void short_messages_arrive(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .fn = short_ones, .timeout_s = PATIENT_WAIT_S };
	assert_int_equal(ranks_run(&r), 0);
}

/* --- What the kernel forbids --- */

static int forbid(long call)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
		       ? -1
		       : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Runs all kinds of messages in a process that may not make that call. Returns how many ranks
 * failed, or -1 if nothing can be forbidden here. */
static int run_without(long call)
{
	pid_t pid = fork();
	if (pid == 0) {
		int bad = 0;
		if (forbid(call) < 0 || syscall(call, getpid(), NULL, 0, NULL, 0, 0) != -1 ||
		    errno != EPERM)
			_exit(255);
		for (int i = 0; i < 4; i++) {
			struct kinds k = { i & 1, i & 2 };
			struct ranks r = { .n = 3,
					   .fn = all_to_neighbours,
					   .arg = &k,
					   .timeout_s = PATIENT_WAIT_S };
			bad += ranks_run(&r);
		}
		_exit(bad);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	return !WIFEXITED(status) ? 100 : WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

static void check_without(long call)
{
	int bad = run_without(call);
	if (bad < 0)
		skip();
	assert_int_equal(bad, 0);
}

static void the_ring_carries_all_if_memory_cannot_be_read(void **state)
{
	(void)state;
	check_without(SYS_process_vm_readv);
}

static void the_receiver_fetches_all_if_memory_cannot_be_written(void **state)
{
	(void)state;
	check_without(SYS_process_vm_writev);
}

/* --- What goes wrong --- */

static int unequal(struct comm *w, void *arg)
{
	struct err e = ERR_INIT;
	char *data = calloc(1, LONGEST);
	size_t bytes = comm_rank(w) ? *(size_t *)arg : LONGEST;
	int rc = comm_rank(w) ? comm_recv(w, data, bytes, COMM_U8, 0, &e)
			      : comm_send(w, data, bytes, COMM_U8, 1, &e);
	free(data);
	RANK_CHECK(rc < 0, "it went through");
	if (comm_rank(w))
		RANK_CHECK(e.code == ERR_PROTO && strstr(e.text, "bytes"), "%s", e.text);
	else
		RANK_CHECK(e.code == ERR_PEER && strstr(e.text, "rank 1"), "%s", e.text);
	return 0;
}

static void unequal_lengths_are_an_error(void **state)
{
	(void)state;
	for (int i = 0; i < SIZES - 1; i++) {
		size_t due = sizes[i];
		struct ranks r = {
			.n = 2, .fn = unequal, .arg = &due, .timeout_s = PATIENT_WAIT_S
		};
		assert_int_equal(ranks_run(&r), 0);
	}
}

struct march {
	int victim;
	_Atomic int round;
};

/* Rank 0 sends and rank 1 receives until one is killed. The other rank must report it. */
static int until_one_dies(struct comm *w, void *arg)
{
	struct march *m = arg;
	struct err e = ERR_INIT;
	char *data = calloc(1, LONGEST), name[16];
	int rc = 0, other = !comm_rank(w);
	while (rc == 0) {
		rc = comm_rank(w) ? comm_recv(w, data, LONGEST, COMM_U8, 0, &e)
				  : comm_send(w, data, LONGEST, COMM_U8, 1, &e);
		if (other == m->victim)
			atomic_fetch_add(&m->round, 1);
	}
	free(data);
	snprintf(name, sizeof name, "rank %d", other);
	RANK_CHECK(e.code == ERR_PEER && strstr(e.text, name) && strstr(e.text, "died"), "%s",
		   e.text);
	return 0;
}

static void a_killed_rank_is_named(void **state)
{
	(void)state;
	struct march *m = ranks_shared(sizeof *m);
	for (int i = 0; i < 24; i++) {
		*m = (struct march){ .victim = i % 2 };
		struct ranks r = {
			.n = 2, .fn = until_one_dies, .arg = m, .timeout_s = PATIENT_WAIT_S
		};
		ranks_start(&r);
		while (atomic_load(&m->round) < 3 + i)
			cpu_relax();
		kill(r.pid[m->victim], SIGKILL);
		assert_int_equal(ranks_end(&r, !m->victim), 0);
		assert_int_equal(ranks_end(&r, m->victim), -SIGKILL);
		munmap(r.board, sizeof *r.board);
	}
	munmap(m, sizeof *m);
}

struct quitter {
	struct comm *world;
	_Atomic int rounds;
	int after;
};

static void *quit(void *arg)
{
	struct quitter *q = arg;
	while (atomic_load(&q->rounds) < q->after)
		cpu_relax();
	comm_abort(q->world, "enough");
	return NULL;
}

enum { PAGE = 4096, PAGES = LONGEST / PAGE };

static void sample(const char *data, char out[PAGES])
{
	for (int i = 0; i < PAGES; i++)
		out[i] = ((const volatile char *)data)[i * PAGE];
}

struct quitting {
	int after;
	_Atomic uint32_t sender_left;
};

/* Rank 1 gives up while messages arrive; afterwards it owns its buffer again. */
static int give_up(struct comm *w, void *arg)
{
	struct quitting *s = arg;
	struct err e = ERR_INIT;
	char *data = malloc(LONGEST), before[PAGES], after[PAGES];
	struct quitter q = { .world = w, .after = s->after };
	pthread_t thread;
	if (comm_rank(w) == 0) {
		memset(data, 1, LONGEST);
		while (comm_send(w, data, LONGEST, COMM_U8, 1, &e) == 0)
			continue;
		free(data);
		atomic_store(&s->sender_left, 1);
		RANK_CHECK(strstr(e.text, "enough"), "%s", e.text);
		return 0;
	}
	memset(data, 2, LONGEST);
	pthread_create(&thread, NULL, quit, &q);
	while (comm_recv(w, data, LONGEST, COMM_U8, 0, &e) == 0) {
		memset(data, 2, LONGEST);
		atomic_fetch_add(&q.rounds, 1);
	}
	sample(data, before);
	while (!atomic_load(&s->sender_left))
		cpu_relax();
	sample(data, after);
	pthread_join(thread, NULL);
	free(data);
	RANK_CHECK(e.code == ERR_ABORTED, "%s", e.text);
	RANK_CHECK(memcmp(before, after, PAGES) == 0,
		   "a peer wrote into a buffer that it had no longer");
	return 0;
}

static void a_receiver_that_gives_up_gets_its_buffer_back(void **state)
{
	(void)state;
	struct quitting *s = ranks_shared(sizeof *s);
	for (int i = 0; i < 10; i++) {
		*s = (struct quitting){ .after = i % 5 };
		struct ranks r = { .n = 2, .fn = give_up, .arg = s, .timeout_s = PATIENT_WAIT_S };
		assert_int_equal(ranks_run(&r), 0);
	}
	munmap(s, sizeof *s);
}

/* A sender that has claimed a chunk. It writes after the message is closed, and then reports the
 * write. */
struct late_writer {
	struct rendezvous shared;
	_Atomic int wrote;
};

static void *write_late(void *arg)
{
	struct late_writer *l = arg;
	while ((uint32_t)atomic_load(&l->shared.claim) != UINT32_MAX)
		cpu_relax();
	atomic_store(&l->wrote, 1);
	atomic_store(&l->shared.writing, 0);
	return NULL;
}

static void giving_up_waits_for_the_writer(void **state)
{
	(void)state;
	static struct late_writer w;
	struct peer peers[2] = { { .pidfd = -1 },
				 { .pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0) } };
	int members[2] = { 0, 1 };
	struct world world = { .peers = peers };
	struct comm c = { .world = &world, .members = members };
	struct endpoint l = {
		.c = &c,
		.peer = 1,
		.rendezvous = { .tx = &w.shared, .rx = &w.shared, .begun = 5, .open = true }
	};
	pthread_t thread;
	atomic_store(&w.shared.claim, (uint64_t)5 << 32 | 3);
	atomic_store(&w.shared.writing, 1);
	assert_int_equal(pthread_create(&thread, NULL, write_late, &w), 0);
	comm_rendezvous_close(&l);
	assert_int_equal(atomic_load(&w.wrote), 1);
	pthread_join(thread, NULL);
	close(peers[1].pidfd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_messages_arrive),
		cmocka_unit_test(last_bytes_of_another_head_are_ignored),
		cmocka_unit_test(short_messages_arrive),
		cmocka_unit_test(short_messages_keep_their_order),
		cmocka_unit_test(a_sent_buffer_is_free),
		cmocka_unit_test(the_ring_carries_all_if_memory_cannot_be_read),
		cmocka_unit_test(the_receiver_fetches_all_if_memory_cannot_be_written),
		cmocka_unit_test(unequal_lengths_are_an_error),
		cmocka_unit_test(a_killed_rank_is_named),
		cmocka_unit_test(giving_up_waits_for_the_writer),
		cmocka_unit_test(a_receiver_that_gives_up_gets_its_buffer_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
