/*
 * viewer — consoles that a test plays over real connections, with the supervisor of the harness.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_VIEWER_H
#define MUSTER_TESTS_UNIT_LAUNCHER_VIEWER_H

#include "base/net.h"
#include "launcher/rundir/control.h"
#include "launcher/supervise/console.h"
#include "tests/unit/launcher/harness.h"

#include <errno.h>

enum { VIEWERS = CONSOLES + 2 };

/* A console. */
struct viewer {
	int fd;
	struct channel *channel;
	bool closed;
	int answers;
	json_t *body; /* of the last answer */
	struct msg_console_answer last;
};

static struct viewer viewers[VIEWERS];

static inline void viewer_end(struct viewer *v)
{
	if (v->channel)
		close(v->fd);
	channel_close(v->channel);
	json_decref(v->body);
	*v = (struct viewer){ .fd = -1 };
}

static inline void viewer_write(struct viewer *v)
{
	struct buf *out = channel_out(v->channel);
	ssize_t n = out->len ? send(v->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
	if (n > 0)
		buf_drop(out, (size_t)n);
}

static inline void viewer_read(struct viewer *v)
{
	char chunk[65536];
	struct msg m;
	struct err e = ERR_INIT;
	ssize_t n = recv(v->fd, chunk, sizeof chunk, MSG_DONTWAIT);
	v->closed |= n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
	if (n <= 0 || channel_feed(v->channel, chunk, (size_t)n, &e))
		return;
	while (channel_next(v->channel, &m, &e) == 1) {
		assert_int_equal(m.type, MSG_CONSOLE_ANSWER);
		json_decref(v->body);
		v->body = json_incref(m.body);
		assert_int_equal(msg_console_answer_read(v->body, &v->last, NULL), 0);
		v->answers++;
		msg_fini(&m);
	}
}

/* Delivers what is under way between the consoles and the supervisor. */
static inline void pump(void)
{
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < VIEWERS; i++)
			if (viewers[i].channel)
				viewer_write(&viewers[i]);
		deliver_all();
		for (int i = 0; i < VIEWERS; i++)
			if (viewers[i].channel)
				viewer_read(&viewers[i]);
	}
}

/* Connects without a word. secret: NULL: the one in the file. */
static inline struct viewer *viewer_open(int i, const unsigned char *secret)
{
	struct viewer *v = &viewers[i];
	struct rundir_control c;
	unsigned char own[AUTH_SECRET_BYTES];
	json_t *object;
	assert_int_equal(rundir_control_load(rundir_path(h.run), &object, &c, NULL), 0);
	assert_int_equal(auth_secret_parse(c.secret, own, NULL), 0);
	viewer_end(v);
	assert_int_equal(net_connect(c.address, 5, &v->fd, NULL), 0);
	assert_int_equal(channel_open(AUTH_AGENT, secret ? secret : own, CONSOLE_GENERATION,
				      &v->channel, NULL),
			 0);
	json_decref(object);
	return v;
}

static inline void tell(struct viewer *v, enum msg_type type, json_t *body)
{
	assert_int_equal(channel_send(v->channel, type, body, NULL), 0);
	json_decref(body);
}

static inline void greet(struct viewer *v, int version)
{
	tell(v, MSG_CONSOLE_HELLO,
	     msg_console_hello_json(
		     &(struct msg_console_hello){ .version = version, .who = "ada on desk" }));
}

static inline struct viewer *viewer_join(int i)
{
	struct viewer *v = viewer_open(i, NULL);
	greet(v, CONSOLE_VERSION);
	pump();
	assert_false(v->closed);
	return v;
}

static inline void ask_for(struct viewer *v, const char *what)
{
	tell(v, MSG_CONSOLE_ASK, msg_console_ask_json(&(struct msg_console_ask){ .what = what }));
}

static inline void ask(struct viewer *v, const char *what)
{
	int before = v->answers;
	ask_for(v, what);
	pump();
	assert_int_equal(v->answers, before + 1);
}

static inline int setup_started(void **state)
{
	for (int i = 0; i < VIEWERS; i++)
		viewers[i].fd = -1;
	if (setup(state))
		return -1;
	supervise_start(h.supervisor);
	return 0;
}

static inline int teardown_all(void **state)
{
	for (int i = 0; i < VIEWERS; i++)
		viewer_end(&viewers[i]);
	return teardown(state);
}

#endif
