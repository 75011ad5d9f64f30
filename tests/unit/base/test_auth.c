/* Tests the control channel between two ends in one process. The test carries the bytes itself. */
#include "base/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static unsigned char secret[AUTH_SECRET_BYTES], other[AUTH_SECRET_BYTES];

struct pair {
	struct channel *agent, *supervisor;
};

static struct channel *opened(enum auth_side side, const unsigned char *key, uint32_t generation)
{
	struct channel *c;
	assert_int_equal(channel_open(side, key, generation, &c, NULL), 0);
	return c;
}

static struct pair pair_of(uint32_t agent_generation, uint32_t supervisor_generation)
{
	return (struct pair){ opened(AUTH_AGENT, secret, agent_generation),
			      opened(AUTH_SUPERVISOR, secret, supervisor_generation) };
}

static void pair_close(struct pair *p)
{
	channel_close(p->agent);
	channel_close(p->supervisor);
}

/* Carries the bytes that `from` has to send, in pieces of `piece` bytes. */
static int carry(struct channel *from, struct channel *to, size_t piece, struct err *e)
{
	struct buf *b = channel_out(from);
	while (b->len) {
		size_t n = b->len < piece ? b->len : piece;
		if (channel_feed(to, b->data, n, e))
			return -1;
		buf_drop(b, n);
	}
	return 0;
}

static void shake_hands(struct pair *p, size_t piece)
{
	assert_int_equal(carry(p->agent, p->supervisor, piece, NULL), 0);
	assert_int_equal(carry(p->supervisor, p->agent, piece, NULL), 0);
	assert_int_equal(carry(p->agent, p->supervisor, piece, NULL), 0);
	assert_true(channel_ready(p->agent) && channel_ready(p->supervisor));
}

static void send_step(struct channel *c, int step)
{
	json_t *body = json_pack("{s:i}", "step", step);
	assert_int_equal(channel_send(c, MSG_PROGRESS, body, NULL), 0);
	json_decref(body);
}

static void expect_step(struct channel *c, int step)
{
	struct msg m;
	assert_int_equal(channel_next(c, &m, NULL), 1);
	assert_int_equal(m.type, MSG_PROGRESS);
	assert_int_equal(json_integer_value(json_object_get(m.body, "step")), step);
	msg_fini(&m);
}

static void messages_arrive_both_ways_however_the_bytes_are_cut(void **state)
{
	(void)state;
	static const size_t pieces[] = { 1, 3, 64, 100000 };
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
		struct pair p = pair_of(3, 3);
		shake_hands(&p, pieces[i]);
		struct msg m;
		assert_int_equal(channel_next(p.agent, &m, NULL), 0);
		for (int k = 0; k < 20; k++)
			send_step(p.agent, k);
		send_step(p.supervisor, 99);
		assert_int_equal(carry(p.agent, p.supervisor, pieces[i], NULL), 0);
		assert_int_equal(carry(p.supervisor, p.agent, pieces[i], NULL), 0);
		for (int k = 0; k < 20; k++)
			expect_step(p.supervisor, k);
		expect_step(p.agent, 99);
		assert_int_equal(channel_next(p.supervisor, &m, NULL), 0);
		pair_close(&p);
	}
}

static void what_is_sent_early_waits_for_the_handshake(void **state)
{
	(void)state;
	struct pair p = pair_of(1, 1);
	size_t before = channel_out(p.agent)->len;
	send_step(p.agent, 1);
	send_step(p.agent, 2);
	send_step(p.supervisor, 3);
	assert_int_equal(channel_out(p.agent)->len, before);
	assert_int_equal(channel_out(p.supervisor)->len, 0);
	shake_hands(&p, 100000);
	assert_int_equal(carry(p.supervisor, p.agent, 100000, NULL), 0);
	expect_step(p.supervisor, 1);
	expect_step(p.supervisor, 2);
	expect_step(p.agent, 3);
	pair_close(&p);
}

static void a_supervisor_without_the_secret_is_refused(void **state)
{
	(void)state;
	struct pair p = { opened(AUTH_AGENT, secret, 1), opened(AUTH_SUPERVISOR, other, 1) };
	struct err e = ERR_INIT;
	unsigned char forged[64] = { 1, 2, 3 }; /* a nonce and a proof */
	send_step(p.agent, 1);
	assert_int_equal(carry(p.agent, p.supervisor, 1000, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_int_equal(channel_out(p.supervisor)->len, 0); /* it does not answer strangers */
	buf_clear(channel_out(p.agent));
	assert_int_equal(channel_feed(p.agent, forged, sizeof forged, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_false(channel_ready(p.agent));
	assert_int_equal(channel_out(p.agent)->len, 0); /* it learns nothing */
	pair_close(&p);
}

/* An agent without the secret skips its check of the supervisor and sends a forged proof. */
static void an_agent_without_the_secret_is_refused(void **state)
{
	(void)state;
	struct pair p = pair_of(1, 1);
	struct err e = ERR_INIT;
	assert_int_equal(carry(p.agent, p.supervisor, 9, NULL), 0);
	unsigned char forged[32] = { 1, 2, 3 };
	assert_int_equal(channel_feed(p.supervisor, forged, sizeof forged, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_false(channel_ready(p.supervisor));
	/* The channel stays refused, even if the correct proof follows. */
	assert_int_equal(carry(p.supervisor, p.agent, 9, NULL), 0);
	assert_int_equal(carry(p.agent, p.supervisor, 9, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	pair_close(&p);
}

/* Every byte of the first packet matters. With the last byte, the supervisor knows that its peer
 * is an agent. */
static void the_first_packet_proves_the_secret(void **state)
{
	(void)state;
	struct pair p = pair_of(1, 1);
	struct buf *hello = channel_out(p.agent);
	for (size_t i = 0; i < hello->len; i++) {
		struct channel *c = opened(AUTH_SUPERVISOR, secret, 1);
		hello->data[i] ^= 1;
		assert_int_equal(channel_feed(c, hello->data, hello->len, NULL), -1);
		assert_false(channel_greeted(c));
		assert_int_equal(channel_out(c)->len, 0);
		hello->data[i] ^= 1;
		channel_close(c);
	}
	assert_int_equal(channel_feed(p.supervisor, hello->data, hello->len - 1, NULL), 0);
	assert_false(channel_greeted(p.supervisor));
	assert_int_equal(channel_feed(p.supervisor, hello->data + hello->len - 1, 1, NULL), 0);
	assert_true(channel_greeted(p.supervisor));
	pair_close(&p);
}

static void the_supervisors_own_proof_does_not_serve_the_agent(void **state)
{
	(void)state;
	struct pair p = pair_of(1, 1);
	struct err e = ERR_INIT;
	assert_int_equal(carry(p.agent, p.supervisor, 100, NULL), 0);
	struct buf *reply = channel_out(p.supervisor);
	assert_int_equal(reply->len, 64);
	assert_int_equal(channel_feed(p.supervisor, reply->data + 32, 32, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	pair_close(&p);
}

static void a_stranger_is_refused(void **state)
{
	(void)state;
	struct channel *c = opened(AUTH_SUPERVISOR, secret, 1);
	struct err e = ERR_INIT;
	const char http[] = "GET / HTTP/1.1\r\nHost: localhost:8080\r\n\r\n";
	assert_int_equal(channel_feed(c, http, sizeof http, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	channel_close(c);
}

/* Two sealed frames (steps 1 and 2) on the way to the supervisor. */
struct flight {
	struct pair p;
	unsigned char *bytes;
	size_t frame, total;
};

static struct flight two_frames(void)
{
	struct flight f = { .p = pair_of(1, 1) };
	shake_hands(&f.p, 1000);
	send_step(f.p.agent, 1);
	f.frame = channel_out(f.p.agent)->len;
	send_step(f.p.agent, 2);
	f.total = channel_out(f.p.agent)->len;
	assert_int_equal(f.total, 2 * f.frame);
	f.bytes = malloc(f.total);
	memcpy(f.bytes, channel_out(f.p.agent)->data, f.total);
	return f;
}

static void flight_end(struct flight *f)
{
	free(f->bytes);
	pair_close(&f->p);
}

static void expect_auth_failure(struct flight *f)
{
	struct msg m;
	struct err e = ERR_INIT;
	assert_int_equal(channel_next(f->p.supervisor, &m, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	/* The error is permanent. */
	assert_int_equal(channel_feed(f->p.supervisor, f->bytes, f->total, &e), -1);
	assert_int_equal(channel_next(f->p.supervisor, &m, &e), -1);
	assert_int_equal(channel_send(f->p.supervisor, MSG_STOP, NULL, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
}

static void a_changed_bit_anywhere_closes_the_channel(void **state)
{
	(void)state;
	size_t frame = 100;
	for (size_t at = 4; at < frame; at++) {
		struct flight f = two_frames();
		frame = f.frame;
		f.bytes[at] ^= 0x10;
		assert_int_equal(channel_feed(f.p.supervisor, f.bytes, f.total, NULL), 0);
		expect_auth_failure(&f);
		flight_end(&f);
	}
}

static void a_repeated_frame_closes_the_channel(void **state)
{
	(void)state;
	struct flight f = two_frames();
	assert_int_equal(channel_feed(f.p.supervisor, f.bytes, f.frame, NULL), 0);
	assert_int_equal(channel_feed(f.p.supervisor, f.bytes, f.frame, NULL), 0);
	expect_step(f.p.supervisor, 1);
	expect_auth_failure(&f);
	flight_end(&f);
}

static void a_dropped_or_moved_frame_closes_the_channel(void **state)
{
	(void)state;
	struct flight f = two_frames();
	assert_int_equal(channel_feed(f.p.supervisor, f.bytes + f.frame, f.frame, NULL), 0);
	assert_int_equal(channel_feed(f.p.supervisor, f.bytes, f.frame, NULL), 0);
	expect_auth_failure(&f);
	flight_end(&f);
}

static void a_frame_sent_back_closes_the_channel(void **state)
{
	(void)state;
	struct flight f = two_frames();
	struct msg m;
	struct err e = ERR_INIT;
	assert_int_equal(channel_feed(f.p.agent, f.bytes, f.frame, NULL), 0);
	assert_int_equal(channel_next(f.p.agent, &m, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	flight_end(&f);
}

static void a_frame_of_an_earlier_connection_does_not_open(void **state)
{
	(void)state;
	struct flight old = two_frames(), f = two_frames();
	assert_int_equal(channel_feed(f.p.supervisor, old.bytes, old.frame, NULL), 0);
	expect_auth_failure(&f);
	flight_end(&old);
	flight_end(&f);
}

static void a_cut_frame_is_waited_for(void **state)
{
	(void)state;
	struct flight f = two_frames();
	struct msg m;
	assert_int_equal(channel_feed(f.p.supervisor, f.bytes, f.frame - 1, NULL), 0);
	assert_int_equal(channel_next(f.p.supervisor, &m, NULL), 0);
	assert_int_equal(channel_feed(f.p.supervisor, f.bytes + f.frame - 1, 1, NULL), 0);
	expect_step(f.p.supervisor, 1);
	flight_end(&f);
}

static void lengths_out_of_bounds_are_refused_at_once(void **state)
{
	(void)state;
	static const unsigned char lengths[][4] = {
		{ 0, 0, 0, 0 },
		{ 15, 0, 0, 0 },
		{ 1, 0, 16, 0 },
		{ 255, 255, 255, 255 },
	};
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		struct pair p = pair_of(1, 1);
		struct msg m;
		struct err e = ERR_INIT;
		shake_hands(&p, 1000);
		assert_int_equal(channel_feed(p.supervisor, lengths[i], 4, NULL), 0);
		assert_int_equal(channel_next(p.supervisor, &m, &e), -1);
		assert_int_equal(e.code, ERR_PROTO);
		pair_close(&p);
	}
}

static void another_generation_is_stale_and_the_channel_goes_on(void **state)
{
	(void)state;
	struct pair p = pair_of(4, 5);
	struct msg m;
	struct err e = ERR_INIT;
	shake_hands(&p, 1000);
	send_step(p.agent, 1);
	send_step(p.agent, 2);
	assert_int_equal(carry(p.agent, p.supervisor, 1000, NULL), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(channel_next(p.supervisor, &m, &e), -1);
		assert_int_equal(e.code, ERR_STALE);
	}
	assert_int_equal(channel_next(p.supervisor, &m, &e), 0);
	pair_close(&p);
}

static void a_message_too_large_is_the_senders_error(void **state)
{
	(void)state;
	struct pair p = pair_of(1, 1);
	struct err e = ERR_INIT;
	shake_hands(&p, 1000);
	char *text = malloc(MSG_MAX + 1);
	memset(text, 'x', MSG_MAX);
	text[MSG_MAX] = '\0';
	json_t *body = json_pack("{s:s}", "text", text);
	assert_int_equal(channel_send(p.agent, MSG_LOG, body, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	json_decref(body);
	/* A message of the maximum size passes. The channel still works. */
	text[MSG_MAX - 16 - 8 - 11] = '\0';
	body = json_pack("{s:s}", "text", text);
	assert_int_equal(channel_send(p.agent, MSG_LOG, body, &e), 0);
	json_decref(body);
	assert_int_equal(channel_out(p.agent)->len, MSG_MAX + 4);
	assert_int_equal(carry(p.agent, p.supervisor, 65536, NULL), 0);
	struct msg m;
	assert_int_equal(channel_next(p.supervisor, &m, NULL), 1);
	msg_fini(&m);
	free(text);
	pair_close(&p);
}

static void a_secret_survives_its_hex_form_and_nothing_else_is_taken(void **state)
{
	(void)state;
	char hex[AUTH_SECRET_HEX];
	unsigned char back[AUTH_SECRET_BYTES];
	struct err e = ERR_INIT;
	auth_secret_hex(secret, hex);
	assert_int_equal(strlen(hex), 64);
	assert_int_equal(auth_secret_parse(hex, back, NULL), 0);
	assert_memory_equal(back, secret, sizeof back);
	static const char *const bad[] = { "", "00", "zz" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(auth_secret_parse(bad[i], back, &e), -1);
	hex[63] = 'g';
	assert_int_equal(auth_secret_parse(hex, back, &e), -1);
	assert_null(strstr(e.text, hex));
	assert_memory_equal(back, secret, sizeof back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive_both_ways_however_the_bytes_are_cut),
		cmocka_unit_test(what_is_sent_early_waits_for_the_handshake),
		cmocka_unit_test(a_supervisor_without_the_secret_is_refused),
		cmocka_unit_test(an_agent_without_the_secret_is_refused),
		cmocka_unit_test(the_first_packet_proves_the_secret),
		cmocka_unit_test(the_supervisors_own_proof_does_not_serve_the_agent),
		cmocka_unit_test(a_stranger_is_refused),
		cmocka_unit_test(a_changed_bit_anywhere_closes_the_channel),
		cmocka_unit_test(a_repeated_frame_closes_the_channel),
		cmocka_unit_test(a_dropped_or_moved_frame_closes_the_channel),
		cmocka_unit_test(a_frame_sent_back_closes_the_channel),
		cmocka_unit_test(a_frame_of_an_earlier_connection_does_not_open),
		cmocka_unit_test(a_cut_frame_is_waited_for),
		cmocka_unit_test(lengths_out_of_bounds_are_refused_at_once),
		cmocka_unit_test(another_generation_is_stale_and_the_channel_goes_on),
		cmocka_unit_test(a_message_too_large_is_the_senders_error),
		cmocka_unit_test(a_secret_survives_its_hex_form_and_nothing_else_is_taken),
	};
	auth_secret_new(secret);
	auth_secret_new(other);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
