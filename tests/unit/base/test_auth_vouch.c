/* Tests the handshake with MUNGE credentials. The test's own munged knows who asks it. All
 * attackers here know the secret. */
#include "base/auth.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static unsigned char secret[AUTH_SECRET_BYTES];

/* A side: its channel, the user that it runs as, and how it cheats. */
struct side {
	struct channel *channel;
	struct voucher by;
	int uid;
	const char *shows;      /* shown in place of an honest credential; NULL: honest */
	bool mirrors, believes; /* shows the peer's own credential; accepts anything */
	bool mute;              /* munged does not answer */
	char seen[AUTH_CREDENTIAL_MAX];
};

static void fake_credential(int uid, const unsigned char about[AUTH_ABOUT_BYTES], char out[128])
{
	char hex[2 * AUTH_ABOUT_BYTES + 1];
	sodium_bin2hex(hex, sizeof hex, about, AUTH_ABOUT_BYTES);
	snprintf(out, 128, "%d:%s", uid, hex);
}

static int fake_work(const struct voucher *by, struct vouch *v, struct err *e)
{
	struct side *s = (struct side *)((char *)by - offsetof(struct side, by));
	char honest[128];
	if (s->mute)
		return err_set(e, ERR_AUTH, "munged does not answer");
	if (v->theirs) {
		snprintf(s->seen, sizeof s->seen, "%s", v->theirs);
		fake_credential(s->uid, v->theirs_about, honest);
		if (!s->believes && strcmp(v->theirs, honest))
			return err_set(e, ERR_AUTH,
				       "not this user's credential about this connection");
	}
	fake_credential(s->uid, v->ours_about, honest);
	if (v->make)
		v->ours = strdup(s->shows ? s->shows : s->mirrors ? s->seen : honest);
	return 0;
}

static struct side side_of(enum auth_side which)
{
	struct side s = { .by = { .work = fake_work }, .uid = 1000 };
	assert_int_equal(channel_open(which, secret, 1, &s.channel, NULL), 0);
	channel_require_vouch(s.channel);
	return s;
}

static int run_handshake(struct side *s, struct err *e)
{
	struct vouch v;
	struct err why = ERR_INIT;
	if (!channel_wants(s->channel, &v))
		return 0;
	assert_false(channel_ready(s->channel));
	int failed = s->by.work(&s->by, &v, &why);
	int rc = channel_vouched(s->channel, &v, failed ? &why : NULL, e);
	vouch_fini(&v);
	return rc;
}

/* Carries the bytes that `from` has to send, in pieces. Lets `to` ask its munged. */
static int carry(struct side *from, struct side *to, size_t piece, struct err *e)
{
	struct buf *b = channel_out(from->channel);
	while (b->len) {
		size_t n = b->len < piece ? b->len : piece;
		if (channel_feed(to->channel, b->data, n, e) || run_handshake(to, e))
			return -1;
		buf_drop(b, n);
	}
	return 0;
}

struct pair {
	struct side agent, supervisor;
};

static struct pair pair_of(void)
{
	return (struct pair){ side_of(AUTH_AGENT), side_of(AUTH_SUPERVISOR) };
}

static void pair_close(struct pair *p)
{
	channel_close(p->agent.channel);
	channel_close(p->supervisor.channel);
}

/* Runs the handshake as far as possible. Returns -1 if a side refused the other one. */
static int meet(struct pair *p, size_t piece, struct err *e)
{
	for (int turn = 0; turn < 3; turn++)
		if (carry(&p->agent, &p->supervisor, piece, e) ||
		    carry(&p->supervisor, &p->agent, piece, e))
			return -1;
	return 0;
}

static void say(struct side *s, int step)
{
	json_t *body = json_pack("{s:i}", "step", step);
	assert_int_equal(channel_send(s->channel, MSG_PROGRESS, body, NULL), 0);
	json_decref(body);
}

static void receive_step(struct side *s, int step)
{
	struct msg m;
	assert_int_equal(channel_next(s->channel, &m, NULL), 1);
	assert_int_equal(json_integer_value(json_object_get(m.body, "step")), step);
	msg_fini(&m);
}

static void both_users_are_the_same_and_the_channel_is_ready(void **state)
{
	(void)state;
	static const size_t pieces[] = { 1, 3, 64, 100000 };
	for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
		struct pair p = pair_of();
		say(&p.agent, 1); /* waits */
		say(&p.supervisor, 2);
		assert_int_equal(meet(&p, pieces[i], NULL), 0);
		assert_true(channel_ready(p.agent.channel) && channel_ready(p.supervisor.channel));
		receive_step(&p.supervisor, 1);
		receive_step(&p.agent, 2);
		say(&p.agent, 3);
		assert_int_equal(carry(&p.agent, &p.supervisor, pieces[i], NULL), 0);
		receive_step(&p.supervisor, 3);
		pair_close(&p);
	}
}

/* Runs the handshake. `by` must refuse its peer, and the peer's last messages change nothing. */
static void refused(struct pair *p, struct side *by, enum err_code code)
{
	struct err e = ERR_INIT;
	struct msg m;
	assert_int_equal(meet(p, 100000, &e), -1);
	assert_int_equal(e.code, code);
	assert_false(channel_ready(by->channel));
	assert_int_equal(channel_next(by->channel, &m, &e), -1);
	assert_int_equal(channel_send(by->channel, MSG_STOP, NULL, &e), -1);
	assert_int_equal(e.code, code);
	pair_close(p);
}

static void another_user_is_refused(void **state)
{
	(void)state;
	struct pair a = pair_of(), b = pair_of();
	a.agent.uid = 1001;
	refused(&a, &a.supervisor, ERR_AUTH);
	b.supervisor.uid = 1001;
	b.supervisor.believes = true;
	refused(&b, &b.agent, ERR_AUTH);
}

static void a_credential_of_another_handshake_is_refused(void **state)
{
	(void)state;
	struct pair old = pair_of(), a = pair_of(), b = pair_of();
	assert_int_equal(meet(&old, 1000, NULL), 0);
	a.agent.shows = old.supervisor.seen;
	refused(&a, &a.supervisor, ERR_AUTH);
	b.supervisor.believes = true;
	b.supervisor.shows = old.agent.seen;
	refused(&b, &b.agent, ERR_AUTH);
	pair_close(&old);
}

static void ones_own_credential_is_refused(void **state)
{
	(void)state;
	struct pair p = pair_of();
	p.supervisor.mirrors = true;
	refused(&p, &p.agent, ERR_AUTH);
}

/* An attacker in the middle knows the secret and has keys of its own. It passes on the honest
 * ends' credentials. */
static void somebody_in_the_middle_is_refused(void **state)
{
	(void)state;
	struct pair left = pair_of(), right = pair_of();
	left.supervisor.believes = true;
	left.supervisor.uid = 1001;
	/* No agent accepts the attacker's credential, but the attacker has seen the agent's. */
	assert_int_equal(meet(&left, 1000, NULL), -1);
	assert_true(*left.supervisor.seen);
	right.agent.shows = left.supervisor.seen;
	refused(&right, &right.supervisor, ERR_AUTH);
	pair_close(&left);
}

static void garbage_is_refused(void **state)
{
	(void)state;
	char long_one[AUTH_CREDENTIAL_MAX + 2];
	memset(long_one, 'x', sizeof long_one - 1);
	long_one[sizeof long_one - 1] = '\0';
	const struct {
		const char *shows;
		enum err_code code;
	} lies[] = { { "MUNGE:AwQ", ERR_AUTH }, { "", ERR_PROTO }, { long_one, ERR_PROTO } };
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct pair p = pair_of();
		p.agent.shows = lies[i].shows;
		refused(&p, &p.supervisor, lies[i].code);
	}
}

/* Returns a side that uses the secret only. The test changes its greeting on the way, as an
 * impostor would. */
static struct side secret_alone(enum auth_side which)
{
	struct side s = { .by = { .work = fake_work } };
	assert_int_equal(channel_open(which, secret, 1, &s.channel, NULL), 0);
	return s;
}

static void a_peer_without_munge_is_refused(void **state)
{
	(void)state;
	struct pair a = { secret_alone(AUTH_AGENT), side_of(AUTH_SUPERVISOR) };
	refused(&a, &a.supervisor, ERR_AUTH);
	struct pair b = { side_of(AUTH_AGENT), secret_alone(AUTH_SUPERVISOR) };
	refused(&b, &b.supervisor, ERR_AUTH);
}

/* Makes a first packet with a valid proof: magic, how, a nonce, HMAC(secret, "H" how nonce). */
static void put_hello(unsigned char hello[72], unsigned char how, const void *nonce)
{
	unsigned char text[34] = { 'H', how };
	memcpy(hello, "MUSTER2", 7);
	hello[7] = how;
	memmove(hello + 8, nonce, 32);
	memcpy(text + 2, hello + 8, 32);
	crypto_auth(hello + 40, text, sizeof text, secret);
}

/* Changes `how` in the agent's first packet. */
static void pretend(struct side *agent, unsigned char how)
{
	unsigned char *hello = (unsigned char *)channel_out(agent->channel)->data;
	put_hello(hello, how, hello + 8);
}

static void an_agent_that_claims_munge_without_a_credential_is_refused(void **state)
{
	(void)state;
	struct pair p = { secret_alone(AUTH_AGENT), side_of(AUTH_SUPERVISOR) };
	pretend(&p.agent, 'M');
	say(&p.agent, 1);
	refused(&p, &p.supervisor, ERR_PROTO); /* its first message replaces a credential */
}

static void a_supervisor_without_a_credential_is_refused(void **state)
{
	(void)state;
	struct pair p = { side_of(AUTH_AGENT), secret_alone(AUTH_SUPERVISOR) };
	struct err e = ERR_INIT;
	struct msg m;
	pretend(&p.agent, 0);
	say(&p.supervisor, 1);
	assert_int_equal(carry(&p.agent, &p.supervisor, 1000, NULL), 0);
	assert_int_equal(carry(&p.supervisor, &p.agent, 1000, NULL), 0);
	assert_int_equal(carry(&p.agent, &p.supervisor, 1000, NULL), 0);
	assert_true(channel_ready(p.supervisor.channel)); /* it believes so */
	assert_int_equal(carry(&p.supervisor, &p.agent, 1000, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	assert_int_equal(channel_next(p.agent.channel, &m, &e), -1);
	pair_close(&p);
}

static void without_munged_there_is_no_channel(void **state)
{
	(void)state;
	struct pair a = pair_of(), b = pair_of();
	struct err e = ERR_INIT;
	a.agent.mute = true;
	assert_int_equal(meet(&a, 1000, &e), -1);
	assert_non_null(strstr(e.text, "munged does not answer"));
	pair_close(&a);
	b.supervisor.mute = true;
	refused(&b, &b.supervisor, ERR_AUTH);
}

static void the_peer_waits_while_munged_is_asked(void **state)
{
	(void)state;
	struct pair p = pair_of();
	struct err e = ERR_INIT;
	struct vouch v;
	char *flood = calloc(1, MSG_MAX);
	assert_int_equal(carry(&p.agent, &p.supervisor, 1000, NULL), 0);
	assert_int_equal(carry(&p.supervisor, &p.agent, 1000, NULL), 0);
	struct buf *proof = channel_out(p.agent.channel);
	assert_int_equal(channel_feed(p.supervisor.channel, proof->data, proof->len, NULL), 0);
	assert_true(channel_wants(p.supervisor.channel, &v));
	assert_true(v.make);
	struct vouch again;
	assert_false(channel_wants(p.supervisor.channel, &again));
	assert_int_equal(channel_feed(p.supervisor.channel, flood, 1000, NULL), 0);
	assert_int_equal(channel_feed(p.supervisor.channel, flood, MSG_MAX, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	/* A late answer has no effect. */
	assert_int_equal(fake_work(&p.supervisor.by, &v, NULL), 0);
	assert_int_equal(channel_vouched(p.supervisor.channel, &v, NULL, &e), -1);
	assert_false(channel_ready(p.supervisor.channel));
	vouch_fini(&v);
	free(flood);
	pair_close(&p);
}

static void nobody_vouches_unasked(void **state)
{
	(void)state;
	struct side s = side_of(AUTH_SUPERVISOR);
	struct vouch v = { .theirs = NULL };
	assert_int_equal(channel_vouched(s.channel, &v, NULL, NULL), -1);
	assert_false(channel_ready(s.channel));
	channel_close(s.channel);
}

/* Computes HMAC(secret, label nonces). Anybody who knows the secret can do so. */
static void hmac(const char *label, const void *nonces, unsigned char out[32])
{
	crypto_auth_hmacsha512256_state h;
	crypto_auth_hmacsha512256_init(&h, secret, sizeof secret);
	crypto_auth_hmacsha512256_update(&h, (const unsigned char *)label, strlen(label));
	crypto_auth_hmacsha512256_update(&h, nonces, 64);
	crypto_auth_hmacsha512256_final(&h, out);
}

static void an_eavesdropper_with_the_secret_cannot_decrypt(void **state)
{
	(void)state;
	struct pair p = { secret_alone(AUTH_AGENT), secret_alone(AUTH_SUPERVISOR) };
	unsigned char nonces[64], proof[32], key[32], opened[4096], zero[24] = { 0 };
	say(&p.agent, 1);
	memcpy(nonces, channel_out(p.agent.channel)->data + 8, 32);
	assert_int_equal(carry(&p.agent, &p.supervisor, 1000, NULL), 0);
	memcpy(nonces + 32, channel_out(p.supervisor.channel)->data, 32);
	assert_int_equal(carry(&p.supervisor, &p.agent, 1000, NULL), 0);
	struct buf *wire = channel_out(p.agent.channel);
	hmac("A", nonces, proof);
	assert_memory_equal(wire->data, proof, sizeof proof); /* the attacker knows the secret */
	hmac("k>", nonces, key);
	assert_int_equal(crypto_aead_xchacha20poly1305_ietf_decrypt(
				 opened, NULL, NULL, (unsigned char *)wire->data + 36,
				 wire->len - 36, NULL, 0, zero, key),
			 -1);
	pair_close(&p);
}

static void a_nonce_that_makes_the_key_known_is_refused(void **state)
{
	(void)state;
	struct side s = secret_alone(AUTH_SUPERVISOR);
	struct err e = ERR_INIT;
	unsigned char hello[72], nonces[64] = { 0 }, proof[32];
	put_hello(hello, 0, nonces);
	assert_int_equal(channel_feed(s.channel, hello, sizeof hello, NULL), 0);
	memcpy(nonces + 32, channel_out(s.channel)->data, 32);
	hmac("A", nonces, proof);
	assert_int_equal(channel_feed(s.channel, proof, sizeof proof, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	assert_false(channel_ready(s.channel));
	channel_close(s.channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_users_are_the_same_and_the_channel_is_ready),
		cmocka_unit_test(another_user_is_refused),
		cmocka_unit_test(a_credential_of_another_handshake_is_refused),
		cmocka_unit_test(ones_own_credential_is_refused),
		cmocka_unit_test(somebody_in_the_middle_is_refused),
		cmocka_unit_test(garbage_is_refused),
		cmocka_unit_test(a_peer_without_munge_is_refused),
		cmocka_unit_test(an_agent_that_claims_munge_without_a_credential_is_refused),
		cmocka_unit_test(a_supervisor_without_a_credential_is_refused),
		cmocka_unit_test(without_munged_there_is_no_channel),
		cmocka_unit_test(the_peer_waits_while_munged_is_asked),
		cmocka_unit_test(nobody_vouches_unasked),
		cmocka_unit_test(an_eavesdropper_with_the_secret_cannot_decrypt),
		cmocka_unit_test(a_nonce_that_makes_the_key_known_is_refused),
	};
	auth_secret_new(secret);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
