#include "launcher/top/top.h"

#include "base/clock.h"
#include "launcher/top/layout.h"
#include "launcher/top/screen.h"
#include "launcher/top/source.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { TICK_MS = 1000, CTRL_L = 12 };

struct top {
	struct top_screen *screen;
	struct top_source *source;
	struct top_facts *facts;
	struct top_rows rows;
	struct top_ui ui;
	int signals; /* a signalfd */
	int ended;   /* the signal that ends it */
	bool quit;
};

static struct top_view view_of(const struct top *t)
{
	return (struct top_view){
		.facts = t->facts, .rows = &t->rows, .ui = &t->ui, .now = clock_wall_s()
	};
}

static int room_of(const struct top *t)
{
	struct top_view v = view_of(t);
	int rows, cols;
	top_screen_size(t->screen, &rows, &cols);
	return top_layout_room(&v, rows);
}

/* Makes the rows again, which facts and keys change. */
static int settle(struct top *t, struct err *e)
{
	top_rows_free(&t->rows);
	if (top_rows_make(&t->rows, t->facts, &t->ui.order, e))
		return -1;
	top_ui_settle(&t->ui, &t->rows, t->facts, room_of(t));
	return 0;
}

static int draw(struct top *t, struct err *e)
{
	struct top_view v = view_of(t);
	struct top_page page;
	int rows, cols;
	top_screen_size(t->screen, &rows, &cols);
	if (settle(t, e) || top_page_init(&page, rows, cols, top_screen_is_unicode(t->screen), e))
		return -1;
	top_layout(&v, &page);
	top_screen_show(t->screen, &page);
	top_page_fini(&page);
	return 0;
}

static int on_keys(struct top *t, struct err *e)
{
	int key;
	while (!t->quit && (key = top_screen_key(t->screen)) != TOP_KEY_NONE) {
		t->quit = !top_ui_key(&t->ui, key, &t->rows, room_of(t));
		if (settle(t, e)) /* the next key is for the table that this one has made */
			return -1;
	}
	top_source_want_log(t->source, top_ui_details(&t->ui));
	return 0;
}

static void on_signal(struct top *t)
{
	struct signalfd_siginfo s;
	if (read(t->signals, &s, sizeof s) != sizeof s)
		return;
	if (s.ssi_signo == SIGWINCH) {
		top_screen_resize(t->screen);
		return;
	}
	t->quit = true;
	t->ended = s.ssi_signo == SIGINT ? 0 : (int)s.ssi_signo;
}

static void take_facts(struct top *t)
{
	struct top_facts *f = top_source_take(t->source);
	if (!f)
		return;
	top_rows_free(&t->rows); /* they borrow from the facts */
	top_facts_free(t->facts);
	t->facts = f;
}

static int loop(struct top *t, struct err *e)
{
	while (!t->quit) {
		struct pollfd fds[] = { { STDIN_FILENO, POLLIN, 0 },
					{ t->signals, POLLIN, 0 },
					{ top_source_fd(t->source), POLLIN, 0 } };
		if (draw(t, e))
			return -1;
		if (poll(fds, 3, TICK_MS) < 0 && errno != EINTR)
			return err_errno(e, ERR_NOMEM, "waiting for keys");
		if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) /* the terminal is gone */
			return 0;
		if (fds[1].revents)
			on_signal(t);
		if (fds[2].revents)
			take_facts(t);
		if (fds[0].revents && on_keys(t, e))
			return -1;
	}
	return 0;
}

static int open_signals(struct top *t, sigset_t *before, struct err *e)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGWINCH);
	pthread_sigmask(SIG_BLOCK, &set, before);
	t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return t->signals < 0 ? err_errno(e, ERR_NOMEM, "a signalfd") : 0;
}

int top_show(const char *run, int *signal, struct err *e)
{
	struct top t = { .facts = top_facts_new(), .signals = -1 };
	sigset_t before;
	int rc = t.facts ? 0 : err_set(e, ERR_NOMEM, "no memory for the screen");
	if (open_signals(&t, &before, rc ? NULL : e))
		rc = -1;
	if (!rc)
		rc = top_source_open(run, &t.source, e) || top_screen_open(&t.screen, e) ||
		     loop(&t, e);
	top_screen_close(t.screen);
	top_source_close(t.source);
	top_rows_free(&t.rows);
	top_facts_free(t.facts);
	if (t.signals >= 0)
		close(t.signals);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	*signal = t.ended;
	return rc ? -1 : 0;
}
