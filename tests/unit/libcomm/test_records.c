/* Data that goes through a connection's records comes out unchanged, or not at all. The tests also
 * check who may open such a connection. */
#include "base/net.h"
#include "libcomm/tcp/handshake.h"
#include "libcomm/tcp/records.h"
#include "libcomm/world.h"

#include <errno.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEAD = 24, ROOM = 1 << 20 };

static unsigned seed;

static size_t chance(size_t below)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % below;
}

static const struct way {
	enum comm_integrity mode;
	bool aes;
} ways[] = { { COMM_INTEGRITY_CHECKSUM, false },
	     { COMM_INTEGRITY_SEAL, false },
	     { COMM_INTEGRITY_SEAL, true } };
enum { WAYS = sizeof ways / sizeof *ways };

static bool possible(const struct way *w)
{
	return !w->aes || comm_records_have_aes();
}

/* Two ends over a socket pair. The test itself writes to fd[0]; end[1] reads that. */
struct pair {
	struct records *end[2];
	int fd[2];
};

static void pair_open(struct pair *p, const struct way *w, unsigned char key)
{
	unsigned char a[RECORD_KEY], b[RECORD_KEY];
	memset(a, key, sizeof a);
	memset(b, key + 1, sizeof b);
	assert_int_equal(comm_records_new(w->mode, w->aes, a, b, &p->end[0], NULL), 0);
	assert_int_equal(comm_records_new(w->mode, w->aes, b, a, &p->end[1], NULL), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p->fd), 0);
}

static void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		comm_records_free(p->end[i]);
		if (p->fd[i] >= 0)
			close(p->fd[i]);
	}
}

static ssize_t put_bytes(struct pair *p, const void *data, size_t n)
{
	return comm_records_put(p->end[0], p->fd[0], &(struct iovec){ (void *)(uintptr_t)data, n },
				1);
}

static ssize_t get_bytes(struct pair *p, void *data, size_t n)
{
	return comm_records_get(p->end[1], p->fd[1], &(struct iovec){ data, n }, 1);
}

/* Writes a record of these bytes as it is on the wire. */
static size_t wire(struct pair *p, const void *data, size_t n, unsigned char *out)
{
	assert_int_equal(put_bytes(p, data, n), n);
	ssize_t got = recv(p->fd[1], out, HEAD + n + 1, MSG_DONTWAIT);
	assert_int_equal(got, HEAD + n);
	return (size_t)got;
}

static void inject(struct pair *p, const unsigned char *bytes, size_t n)
{
	assert_int_equal(send(p->fd[0], bytes, n, MSG_DONTWAIT), n);
}

/* --- What comes through --- */

/* Cuts [done, end) of data into some pieces. */
static int cut_randomly(char *data, size_t done, size_t end, struct iovec *v, int most)
{
	int n = 0;
	while (done < end && n < most) {
		size_t len = 1 + chance(n == most - 1 ? end - done
						      : 1 + (end - done) / (1 + chance(8)));
		v[n++] = (struct iovec){ data + done, len < end - done ? len : end - done };
		done += v[n - 1].iov_len;
	}
	return n;
}

static void data_arrives_however_it_is_cut(void **state)
{
	(void)state;
	char *in = malloc(ROOM), *out = malloc(ROOM);
	randombytes_buf(in, ROOM);
	for (int k = 0; k < WAYS; k++) {
		struct pair p;
		if (!possible(&ways[k]))
			continue;
		pair_open(&p, &ways[k], 1);
		memset(out, 0, ROOM);
		size_t sent = 0, got = 0;
		bool moves = true;
		struct iovec to[50];
		int n_to = 0;
		while (got < ROOM) {
			struct iovec from[50];
			int n = cut_randomly(in, sent, ROOM, from, 1 + (int)chance(50));
			ssize_t moved = n ? comm_records_put(p.end[0], p.fd[0], from, n) : 0;
			assert_true(moved >= 0);
			sent += (size_t)moved;
			/* a request stays until some of its data is there */
			if (moves)
				n_to = cut_randomly(out, got, ROOM, to, 1 + (int)chance(50));
			moved = comm_records_get(p.end[1], p.fd[1], to, n_to);
			assert_true(moved >= 0);
			got += (size_t)moved;
			moves = moved > 0;
			assert_true(got <= sent);
		}
		assert_memory_equal(in, out, ROOM);
		pair_close(&p);
	}
	free(in);
	free(out);
}

static void the_end_of_the_stream_is_not_a_broken_record(void **state)
{
	(void)state;
	for (int k = 0; k < WAYS; k++) {
		struct pair p;
		char byte;
		if (!possible(&ways[k]))
			continue;
		pair_open(&p, &ways[k], 1);
		assert_int_equal(put_bytes(&p, "x", 1), 1);
		close(p.fd[0]);
		p.fd[0] = -1;
		assert_int_equal(get_bytes(&p, &byte, 1), 1);
		errno = 1;
		assert_int_equal(get_bytes(&p, &byte, 1), RECORDS_END);
		assert_int_equal(errno, 0);
		pair_close(&p);
	}
}

static void sealed_bytes_do_not_show_the_data(void **state)
{
	(void)state;
	for (int k = 0; k < WAYS; k++) {
		struct pair p;
		unsigned char bytes[HEAD + 64 + 1];
		static const char text[64] =
			"the gradients of layer 7, which nobody else is to see........";
		if (!possible(&ways[k]))
			continue;
		pair_open(&p, &ways[k], 1);
		size_t n = wire(&p, text, sizeof text, bytes);
		assert_int_equal(memmem(bytes, n, text, 16) == NULL,
				 ways[k].mode == COMM_INTEGRITY_SEAL);
		pair_close(&p);
	}
}

/* --- What does not --- */

static void expect_broken(struct pair *p, size_t room)
{
	char out[512] = { 0 };
	assert_int_equal(get_bytes(p, out, room), RECORDS_BROKEN);
	assert_int_equal(get_bytes(p, out, room), RECORDS_BROKEN); /* it stays broken */
}

static void every_flipped_bit_is_found(void **state)
{
	(void)state;
	enum { BYTES = 100 };
	for (int k = 0; k < WAYS; k++)
		for (size_t bit = 0; possible(&ways[k]) && bit < 8 * (HEAD + BYTES); bit++) {
			struct pair p;
			unsigned char bytes[HEAD + BYTES + 1], data[BYTES];
			memset(data, 'a', sizeof data);
			pair_open(&p, &ways[k], 1);
			size_t n = wire(&p, data, sizeof data, bytes);
			bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
			inject(&p, bytes, n);
			/* read directly to its place, and through a buffer */
			expect_broken(&p, bit % 2 ? BYTES : BYTES / 2);
			pair_close(&p);
		}
}

static void dropped_doubled_and_moved_bytes_are_found(void **state)
{
	(void)state;
	enum { BYTES = 40, RECORD = HEAD + BYTES };
	/* clang-format off */
	static const struct {
		size_t at[4][2]; /* from, to: the ranges of three records that are sent */
		int good;        /* records that come before the broken one */
	} cases[] = {
		{ { { RECORD, 3 * RECORD } }, 0 },                                              /* the first is dropped */
		{ { { 0, RECORD }, { 2 * RECORD, 3 * RECORD } }, 1 },                           /* the second is dropped */
		{ { { 0, RECORD }, { 0, 3 * RECORD } }, 1 },                                    /* the first is doubled */
		{ { { 0, 2 * RECORD }, { 0, RECORD } }, 2 },                                    /* the first is repeated later */
		{ { { RECORD, 2 * RECORD }, { 0, RECORD } }, 0 },                               /* the first is moved */
		{ { { 0, RECORD + 1 }, { RECORD + 2, 3 * RECORD } }, 1 },                       /* a byte of a head is dropped */
		{ { { 0, RECORD - 1 }, { RECORD, 3 * RECORD } }, 0 },                           /* the last byte of a record is dropped */
		{ { { 0, RECORD + 30 }, { RECORD + 29, 3 * RECORD } }, 1 },                     /* a byte is doubled */
	};
	/* clang-format on */
	for (int k = 0; k < WAYS; k++)
		for (size_t c = 0; possible(&ways[k]) && c < sizeof cases / sizeof *cases; c++) {
			struct pair p;
			unsigned char bytes[3 * RECORD + 1], data[BYTES];
			for (int i = 0; i < BYTES; i++)
				data[i] = (unsigned char)(7 * i + 1);
			pair_open(&p, &ways[k], 1);
			for (int i = 0; i < 3; i++)
				wire(&p, data, BYTES, bytes + i * RECORD);
			for (int i = 0; i < 4; i++)
				inject(&p, bytes + cases[c].at[i][0],
				       cases[c].at[i][1] - cases[c].at[i][0]);
			for (int i = 0; i < cases[c].good; i++)
				assert_int_equal(get_bytes(&p, data, BYTES), BYTES);
			expect_broken(&p, BYTES);
			assert_int_equal(comm_records_number(p.end[1]), cases[c].good);
			pair_close(&p);
		}
}

static void records_of_another_connection_or_direction_are_found(void **state)
{
	(void)state;
	for (int k = 0; k < WAYS; k++) {
		struct pair p, other;
		unsigned char bytes[HEAD + 9];
		if (!possible(&ways[k]))
			continue;
		pair_open(&p, &ways[k], 1);
		pair_open(&other, &ways[k], 9);
		inject(&p, bytes, wire(&other, "12345678", 8, bytes));
		expect_broken(&p, 8);
		pair_close(&other);
		pair_close(&p);
		pair_open(&p, &ways[k], 1); /* sent back to its sender */
		size_t n = wire(&p, "12345678", 8, bytes);
		assert_int_equal(send(p.fd[1], bytes, n, 0), n);
		char out[8];
		assert_int_equal(comm_records_get(p.end[0], p.fd[0], &(struct iovec){ out, 8 }, 1),
				 RECORDS_BROKEN);
		pair_close(&p);
	}
}

static void no_byte_is_delivered_before_its_record_is_complete(void **state)
{
	(void)state;
	for (int k = 0; k < WAYS; k++) {
		struct pair p;
		unsigned char bytes[HEAD + 9];
		char out[8];
		if (!possible(&ways[k]))
			continue;
		pair_open(&p, &ways[k], 1);
		size_t n = wire(&p, "12345678", 8, bytes);
		for (size_t i = 0; i < n; i++) {
			assert_int_equal(get_bytes(&p, out, 8), 0);
			inject(&p, bytes + i, 1);
		}
		assert_int_equal(get_bytes(&p, out, 8), 8);
		assert_memory_equal(out, "12345678", 8);
		pair_close(&p);
	}
}

/* --- The handshake --- */

struct message_match {
	struct world w[2]; /* 0 connects */
	struct peer peers[2];
	char address[NET_ADDR_MAX]; /* of rank 1 */
	unsigned char secret[SECRET_BYTES];
	struct handshake *h[2];
	struct err e[2];
	int rc[2], listener;
};

static void meet(struct message_match *m, enum comm_integrity a, enum comm_integrity b)
{
	*m = (struct message_match){ .listener = -1 };
	for (int i = 0; i < 2; i++) {
		m->w[i] = (struct world){ .rank = i,
					  .size = 2,
					  .peers = m->peers,
					  .sockets = 1,
					  .integrity = i ? b : a,
					  .listener = -1 };
		m->peers[i].host = i ? "host-b" : "host-a";
	}
	m->peers[1].address = m->address;
	m->peers[1].secret = m->secret;
	randombytes_buf(m->secret, SECRET_BYTES);
	struct hello what = { .kind = HELLO_DATA, .to = 1, .group = 1, .lanes = 1 };
	int fd = -1;
	assert_int_equal(net_listen("127.0.0.1", &m->listener, m->address, NULL), 0);
	assert_int_equal(comm_handshake_connect(&m->w[0], &what, &m->h[0], NULL), 0);
	while (fd < 0)
		assert_int_equal(net_accept(m->listener, &fd, NULL), 0);
	assert_int_equal(comm_handshake_accept(&m->w[1], fd, &m->h[1], NULL), 0);
}

/* Runs until both ends have done what they can. An end that fails is closed. */
static void shake(struct message_match *m)
{
	for (int turn = 0; turn < 200; turn++)
		for (int i = 0; i < 2; i++) {
			if (!m->h[i] || m->rc[i])
				continue;
			m->rc[i] = comm_handshake_step(m->h[i], &m->e[i]);
			if (m->rc[i] < 0) {
				comm_handshake_free(m->h[i]);
				m->h[i] = NULL;
			}
			usleep(100);
		}
}

static void part(struct message_match *m)
{
	for (int i = 0; i < 2; i++)
		comm_handshake_free(m->h[i]);
	close(m->listener);
}

static void both_ends_compute_the_same_keys(void **state)
{
	(void)state;
	static const enum comm_integrity modes[] = { COMM_INTEGRITY_CHECKSUM, COMM_INTEGRITY_SEAL };
	for (int k = 0; k < 2; k++) {
		struct message_match m;
		struct pair p;
		char out[6];
		meet(&m, modes[k], modes[k]);
		shake(&m);
		assert_int_equal(m.rc[0], 1);
		assert_int_equal(m.rc[1], 1);
		for (int i = 0; i < 2; i++) {
			p.fd[i] = comm_handshake_finish(m.h[i], &p.end[i]);
			m.h[i] = NULL;
			assert_non_null(p.end[i]);
		}
		assert_int_equal(put_bytes(&p, "there", 6), 6);
		while (get_bytes(&p, out, 6) == 0)
			usleep(100);
		assert_string_equal(out, "there");
		pair_close(&p);
		part(&m);
	}
}

static void another_integrity_is_refused_by_name(void **state)
{
	(void)state;
	for (int a = 0; a < COMM_INTEGRITY_COUNT; a++)
		for (int b = 0; b < COMM_INTEGRITY_COUNT; b++) {
			struct message_match m;
			char want[120];
			if (a == b)
				continue;
			meet(&m, (enum comm_integrity)a, (enum comm_integrity)b);
			shake(&m);
			assert_int_equal(m.rc[0], -1);
			assert_int_equal(m.rc[1], -1);
			snprintf(want, sizeof want,
				 "rank 1 on host host-b has [network] integrity = %s, this one %s",
				 comm_integrity_name((enum comm_integrity)b),
				 comm_integrity_name((enum comm_integrity)a));
			assert_non_null(strstr(m.e[0].text, want));
			assert_int_equal(m.e[0].code, ERR_USAGE);
			part(&m);
		}
}

/* A man in the middle makes both ends believe that the other one asks for less. */
static void a_man_in_the_middle_cannot_remove_the_integrity(void **state)
{
	(void)state;
	struct message_match m;
	struct hello hello;
	unsigned char rest[256];
	meet(&m, COMM_INTEGRITY_SEAL, COMM_INTEGRITY_NONE);
	int there = comm_handshake_fd(m.h[1]), middle[2];
	comm_handshake_step(m.h[0], NULL);
	usleep(10000);
	comm_handshake_step(m.h[0], NULL);
	assert_int_equal(recv(there, &hello, sizeof hello, MSG_WAITALL), sizeof hello);
	assert_int_equal(hello.integrity, COMM_INTEGRITY_SEAL);
	hello.integrity = COMM_INTEGRITY_NONE;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, middle), 0);
	struct handshake *h;
	struct err e = ERR_INIT;
	assert_int_equal(comm_handshake_accept(&m.w[1], middle[1], &h, NULL), 0);
	assert_int_equal(send(middle[0], &hello, sizeof hello, 0), sizeof hello);
	assert_int_equal(comm_handshake_step(h, &e), 0);
	ssize_t n = recv(middle[0], rest, sizeof rest, MSG_DONTWAIT);
	assert_true(n > 40);
	rest[32] = COMM_INTEGRITY_SEAL; /* and in the answer */
	assert_int_equal(send(there, rest, (size_t)n, 0), n);
	usleep(10000);
	assert_int_equal(comm_handshake_step(m.h[0], &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	close(middle[0]);
	comm_handshake_free(h);
	part(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_arrives_however_it_is_cut),
		cmocka_unit_test(the_end_of_the_stream_is_not_a_broken_record),
		cmocka_unit_test(sealed_bytes_do_not_show_the_data),
		cmocka_unit_test(every_flipped_bit_is_found),
		cmocka_unit_test(dropped_doubled_and_moved_bytes_are_found),
		cmocka_unit_test(records_of_another_connection_or_direction_are_found),
		cmocka_unit_test(no_byte_is_delivered_before_its_record_is_complete),
		cmocka_unit_test(both_ends_compute_the_same_keys),
		cmocka_unit_test(another_integrity_is_refused_by_name),
		cmocka_unit_test(a_man_in_the_middle_cannot_remove_the_integrity),
	};
	const char *given = getenv("SEED");
	seed = given ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
	print_message("# SEED=%u\n", seed);
	return sodium_init() < 0 ? 1 : cmocka_run_group_tests_name("records", tests, NULL, NULL);
}
