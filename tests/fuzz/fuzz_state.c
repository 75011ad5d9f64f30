/* Any bytes as state.json, as the file control, and as what consoles and supervisors tell each other: what is accepted has all that a reader uses, and an
 * error says what is wrong without the secret. */
#include "launcher/rundir/control.h"
#include "launcher/rundir/state.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_state(const struct rundir_state *s)
{
	if (rundir_state_find(s->state) >= RUNDIR_STATE_COUNT || !s->name || !s->layout ||
	    !s->host || s->steps < 0 || (s->has_step && s->step < 0))
		abort();
	for (size_t i = 0; i < json_array_size(s->stand_out); i++) {
		struct rundir_state_spot spot;
		if (!rundir_state_spot_read(json_array_get(s->stand_out, i), &spot, NULL) &&
		    (!spot.node || !spot.what))
			abort();
	}
	for (size_t i = 0; i < json_array_size(s->warnings); i++) {
		struct rundir_state_warning w;
		if (!rundir_state_warning_read(json_array_get(s->warnings, i), &w, NULL) &&
		    (!w.text || !w.id))
			abort();
	}
	struct rundir_state_ckpt c;
	if (s->has_checkpoint && !rundir_state_ckpt_read(s->checkpoint, &c, NULL) &&
	    (!c.path || c.step < 0))
		abort();
	struct rundir_state_next n;
	if (s->has_next_checkpoint && !rundir_state_next_read(s->next_checkpoint, &n, NULL) &&
	    n.step < 0)
		abort();
}

static void check_messages(const char *text, size_t size)
{
	struct msg_console_hello hello;
	struct msg_console_ask ask;
	struct msg_console_answer a;
	struct rundir_state_rank rank;
	json_t *o = json_loadb(text, size, 0, NULL);
	if (!msg_console_hello_read(o, &hello, NULL) && !hello.who)
		abort();
	if (!msg_console_ask_read(o, &ask, NULL) && !ask.what)
		abort();
	if (!msg_console_answer_read(o, &a, NULL) && (!a.text || (a.has_path && !a.path)))
		abort();
	if (!rundir_state_rank_read(o, &rank, NULL) && (!rank.node || !rank.phase))
		abort();
	json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct rundir_state s;
	struct rundir_control c;
	struct err e = ERR_INIT;
	json_t *object;
	if (!rundir_state_parse(text, size, &object, &s, &e)) {
		check_state(&s);
		json_decref(object);
	} else if (object || e.code == ERR_NONE || !*e.text) {
		abort();
	}
	check_messages(text, size);
	e = (struct err)ERR_INIT;
	if (!rundir_control_parse(text, size, &object, &c, &e)) {
		if (!c.address || !c.secret || !c.auth || !c.host)
			abort();
		json_decref(object);
	} else if (object || e.code == ERR_NONE || !*e.text) {
		abort();
	}
	return 0;
}
