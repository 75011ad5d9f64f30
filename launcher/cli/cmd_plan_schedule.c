/* `muster plan --schedule`: draws the pipeline's schedule as simulated, and next to it as a run
 * measured it. */
#include "launcher/cli/cmd_plan.h"

#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/supervise/supervise.h"
#include "launcher/supervise/terminal.h"
#include "launcher/rundir/timelines.h"
#include "plan/show/draw_timeline.h"
#include "plan/show/program.h"
#include "plan/spec/job/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct picture {
	/* of the first replica; others may have other numbers of micro-batches */
	struct schedule schedule;
	struct timeline simulated, measured;
	struct drawing drawing;
	struct buf title;
};

static void picture_fini(struct picture *p)
{
	schedule_free(&p->schedule);
	timeline_free(&p->simulated);
	timeline_free(&p->measured);
	buf_fini(&p->title);
}

/* Simulates with the measured times of the passes, so that only the waiting differs. */
static int simulate_as_measured(const struct plan *plan, struct picture *p, struct err *e)
{
	int stages = layout_n_stages(&plan->layout);
	double *seconds = calloc(3 * (size_t)stages, sizeof *seconds);
	if (!seconds)
		return err_set(e, ERR_NOMEM,
			       "no memory to simulate %d stages; close other programs", stages);
	timeline_means(&p->measured, &plan->layout, seconds, seconds + stages,
		       seconds + 2 * stages);
	struct sched_costs costs = { .forward = seconds,
				     .input = seconds + stages,
				     .weight = seconds + 2 * stages,
				     .hop = 0 };
	double end = schedule_simulate(&p->schedule, &costs, &p->simulated, NULL);
	free(seconds);
	return end < 0 ? err_set(e, ERR_NOMEM,
				 "no memory to simulate %d stages; close other programs", stages)
		       : 0;
}

static int simulate_schedule(const struct plan *plan, struct picture *p, struct err *e)
{
	if (schedule_simulate(&p->schedule, &plan->costs, &p->simulated, NULL) < 0)
		return err_set(e, ERR_NOMEM,
			       "no memory to simulate %d stages; close other programs",
			       layout_n_stages(&plan->layout));
	return 0;
}

static int build_schedule(const struct job *job, const struct plan *plan, const char *run,
			  struct picture *p, struct err *e)
{
	const struct layout *l = &plan->layout;
	const char *program = show_program_name(job);
	int micros = plan->shares[0].micros;
	if (schedule_build(job->parallel.schedule, l, micros, &p->schedule, e))
		return -1;
	if (run ? rundir_timelines_load(run, l, micros, &p->measured, e) ||
			    simulate_as_measured(plan, p, e)
		: simulate_schedule(plan, p, e))
		return -1;
	buf_printf(&p->title, "%s: %d rank%s × %d chunk%s, %d micro-batch%s%s%s",
		   job_word(job, offsetof(struct job, parallel.schedule)), l->pp, human_s(l->pp),
		   l->chunks, human_s(l->chunks), micros, micros == 1 ? "" : "es",
		   program ? ", by " : "", program ? program : "");
	p->drawing = (struct drawing){
		.title = buf_str(&p->title),
		.n_parts = run ? 2 : 1,
		.parts = { { run ? "simulated with the measured passes" : "simulated",
			     &p->simulated, run ? 0 : plan->time.total, run ? 0 : plan->time.pp },
			   { "measured", &p->measured, 0, 0 } },
	};
	return 0;
}

static json_t *part_json(const struct draw_part *part)
{
	const struct timeline *t = part->timeline;
	return json_pack("{s:f, s:f, s:f, s:o}", "seconds", timeline_end(t), "bubble",
			 show_draw_bubble(part), "idle", timeline_idle(t), "timeline",
			 timeline_json(t));
}

static int print_json(const struct job *job, const struct plan *plan, const struct picture *p)
{
	json_t *doc = json_pack("{s:s, s:s, s:i, s:i, s:i, s:o}", "schedule",
				job_word(job, offsetof(struct job, parallel.schedule)), "engine",
				show_program_word(job), "ranks", plan->layout.pp, "chunks",
				plan->layout.chunks, "micros", p->schedule.micros, "simulated",
				part_json(&p->drawing.parts[0]));
	if (p->drawing.n_parts > 1)
		json_object_set_new(doc, "measured", part_json(&p->drawing.parts[1]));
	int bad = !doc || json_dumpf(doc, stdout, JSON_PRESERVE_ORDER);
	json_decref(doc);
	putchar('\n');
	return bad || fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

static int write_svg(const struct picture *p, const char *path)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	show_draw_svg(&p->drawing, &text);
	return command_write_drawing(&text, path, &e) ? command_fail(&e) : STATUS_DONE;
}

static int print_text(const struct picture *p)
{
	struct terminal_options t = { 0 };
	struct buf text = BUF_INIT;
	supervise_terminal_detect(STDOUT_FILENO, &t);
	show_draw_text(&p->drawing, supervise_terminal_columns(STDOUT_FILENO), t.colour, &text);
	int status = command_help(buf_str(&text));
	buf_fini(&text);
	return status;
}

int cmd_plan_schedule(const struct job *job, const struct plan *plan,
		      const struct plan_schedule_options *o)
{
	struct picture p = { .title = BUF_INIT };
	struct err e = ERR_INIT;
	int status = STATUS_DONE;
	if (build_schedule(job, plan, o->measured, &p, &e))
		status = command_fail(&e);
	else if (o->svg)
		status = write_svg(&p, o->svg);
	if (!status)
		status = o->json ? print_json(job, plan, &p) : print_text(&p);
	picture_fini(&p);
	return status;
}
