#include "launcher/report/report.h"

#include "launcher/report/page.h"
#include "launcher/report/sections.h"
#include "launcher/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum { NONCE = 33 };

void report_section_open(struct buf *out, const struct report_run *r, const char *id,
			 const char *title)
{
	buf_printf(out, "<section id=\"%s-%s\" class=\"%s\"><h2>%s</h2>\n", r->id, id, id, title);
}

void report_section_close(struct buf *out)
{
	buf_puts(out, "</section>\n");
}

static void (*const sections[])(struct buf *out, const struct report_run *r) = {
	report_account,  report_story,       report_rank_map, report_schedule,
	report_contract, report_checkpoints, report_job,
};

static void put_sections(struct buf *out, const struct report_run *r)
{
	for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
		sections[i](out, r);
}

static void put_body(struct buf *out, const struct report_run *runs, int n)
{
	buf_puts(out, "<main>\n");
	if (n == 1) {
		report_summary(out, runs);
		report_curves(out, runs, n);
		put_sections(out, runs);
	} else {
		buf_printf(out, "<header><h1>%d runs</h1></header>\n", n);
		report_differences(out, runs, n);
		report_curves(out, runs, n);
		for (int i = 0; i < n; i++) {
			report_summary(out, &runs[i]);
			put_sections(out, &runs[i]);
		}
	}
	buf_puts(out, "</main>\n");
}

static void put_title(struct buf *out, const struct report_run *runs, int n)
{
	for (int i = 0; i < n; i++) {
		buf_puts(out, i ? ", " : "");
		report_text(out, runs[i].name);
	}
	if (n == 1)
		buf_printf(out, ": %s", report_state_word(runs));
}

/* A word that nobody knew when the run's files were written, so that nothing in them can become a
 * script that the page runs. */
static int make_nonce(char out[NONCE], struct err *e)
{
	unsigned char bytes[(NONCE - 1) / 2];
	if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
		return err_errno(e, ERR_IO, "cannot get random bytes");
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

static int fill_page(const char *title, const char *body, struct buf *out, struct err *e)
{
	struct buf page = BUF_INIT, style = BUF_INIT, script = BUF_INIT;
	char nonce[NONCE];
	int rc = -1;
	if (!launcher_template_read("report/page.html", &page, e) &&
	    !launcher_template_read("report/style.css", &style, e) &&
	    !launcher_template_read("report/script.js", &script, e) && !make_nonce(nonce, e)) {
		const struct template_value values[] = {
			{ "title", title },
			{ "style", buf_str(&style) },
			{ "script", buf_str(&script) },
			{ "nonce", nonce },
			{ "body", body },
			{ NULL, NULL },
		};
		rc = launcher_template_render(buf_str(&page), values, out, e);
	}
	buf_fini(&page);
	buf_fini(&style);
	buf_fini(&script);
	return rc;
}

int report_write(const char *const runs[], int n, struct buf *out, struct err *e)
{
	struct report_run *read = calloc((size_t)n, sizeof *read);
	struct buf body = BUF_INIT, title = BUF_INIT;
	int rc = read ? 0 : err_set(e, ERR_NOMEM, "no memory for the report; close other programs"),
	    done = 0;
	for (; !rc && done < n; done++)
		rc = report_run_read(runs[done], done, &read[done], e);
	if (!rc) {
		put_body(&body, read, n);
		put_title(&title, read, n);
		rc = buf_failed(&body) || buf_failed(&title)
			     ? err_set(e, ERR_NOMEM,
				       "no memory for the report; close other programs")
			     : fill_page(buf_str(&title), buf_str(&body), out, e);
	}
	for (int i = 0; i < done; i++)
		report_run_fini(&read[i]);
	free(read);
	buf_fini(&body);
	buf_fini(&title);
	return rc;
}
