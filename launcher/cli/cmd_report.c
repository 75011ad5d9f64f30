#include "base/file.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/report/report.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
	"muster report — write a page that shows a run, or several side by side\n"
	"\n"
	"SYNOPSIS\n"
	"  muster report RUN … [-o FILE.html]\n"
	"\n"
	"DESCRIPTION\n"
	"  Writes one HTML file and prints its name. RUN is a run folder or the name of a run. "
	"The\n"
	"  run may still train, may have ended, or may be damaged: what is missing is left out, "
	"and\n"
	"  the page says so. The file needs no network, no server and no script, and it can be "
	"sent\n"
	"  by mail or printed.\n"
	"\n"
	"  The page shows how the run stands; loss, validation, gradient norm, learning rate and\n"
	"  tokens per second beside the prediction; where the time of all ranks went;\n"
	"  generations, losses and recoveries; the rank map; the schedule of the pipeline,\n"
	"  simulated and measured; the contract with memory; the checkpoints; and the job. Of\n"
	"  several runs it shows the same charts together, and a table of the differences.\n"
	"\n"
	"OPTIONS\n"
	"  -o FILE   the file to write; - is standard output. The default is report.html in the\n"
	"            run folder, or in this folder for several runs. A file of this name is\n"
	"            replaced\n"
	"\n"
	"EXAMPLES\n"
	"  muster report runs/demo\n"
	"  muster report runs/a runs/b -o compared.html\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the page was written\n"
	"  1  the file, or the output, cannot be written\n"
	"  2  usage\n"
	"  3  there is no such run, or a run cannot be read\n";

struct request {
	const char *words[REPORT_RUNS], *runs[REPORT_RUNS], *file;
	char folders[REPORT_RUNS][RUN_PATH];
	int n;
};

/* Returns 0 or an exit status. */
static int read_words(int argc, char **argv, struct request *r)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-o")) {
			if (++i >= argc)
				return command_misuse("report", "-o needs a value");
			r->file = argv[i];
		} else if (argv[i][0] == '-') {
			return command_misuse("report", "\"%s\" is not an option", argv[i]);
		} else if (r->n == REPORT_RUNS) {
			return command_misuse("report", "a page has at most %d runs", REPORT_RUNS);
		} else {
			r->words[r->n++] = argv[i];
		}
	}
	return r->n ? 0 : command_misuse("report", "a run is missing");
}

/* Returns the exit status. */
static int write_page(const struct request *r, const struct buf *page)
{
	char path[RUN_PATH + 16];
	struct err e = ERR_INIT;
	if (r->file && !strcmp(r->file, "-")) {
		fwrite(page->data, 1, page->len, stdout);
		return command_output_end(STATUS_DONE);
	}
	if (r->file)
		snprintf(path, sizeof path, "%s", r->file);
	else
		snprintf(path, sizeof path, "%s%sreport.html", r->n == 1 ? r->runs[0] : "",
			 r->n == 1 ? "/" : "");
	if (file_replace(path, page->data, page->len, &e)) {
		if (!r->file)
			err_prefix(&e, "name another file with -o");
		command_fail(&e);
		return STATUS_FAILED;
	}
	printf("%s\n", path);
	return command_output_end(STATUS_DONE);
}

int cmd_report(int argc, char **argv)
{
	static struct request r; /* too large for a small stack */
	struct buf page = BUF_INIT;
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = read_words(argc, argv, &r);
	if (status)
		return status;
	int rc = 0;
	for (int i = 0; !rc && i < r.n; i++) {
		rc = rundir_find(r.words[i], r.folders[i], &e);
		r.runs[i] = r.folders[i];
	}
	rc = rc || report_write(r.runs, r.n, &page, &e);
	status = rc ? command_fail(&e) : write_page(&r, &page);
	buf_fini(&page);
	return status;
}
