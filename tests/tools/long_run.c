/*
 * long_run — writes the files of a run of true size: events.jsonl, metrics.jsonl, health.jsonl and
 * time.jsonl of a run that trained for weeks, lost ranks now and then, and went on.
 *
 *     long_run FOLDER STEPS RANKS EVERY
 *         STEPS of 5 seconds each on RANKS ranks, 8 on a node. After each EVERY steps a rank is
 *         lost, and 40 steps are repeated. 518400 steps are 30 days.
 *
 * The numbers look like those of a run, and depend on the arguments alone: step 1000 has a loss of
 * exactly 99, so that a test can look for it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NODE = 8, BACK = 40, CHECKPOINT = 500, EVALUATION = 1000, SPIKE = 1000 };

static const double begin = 1700000000, step_s = 5;

struct out {
	FILE *events, *metrics, *health, *time;
	long steps, every;
	int ranks;
	double now; /* since the begin */
	double trained, lost, restart;
};

static FILE *create(const char *folder, const char *name)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *f = fopen(path, "w");
	if (!f) {
		perror(path);
		exit(1);
	}
	return f;
}

/* From 0 to 1, the same for the same number. */
static double noise(unsigned long n)
{
	n *= 0x9e3779b97f4a7c15ul;
	n ^= n >> 31;
	n *= 0xbf58476d1ce4e5b9ul;
	n ^= n >> 29;
	return (double)(n >> 11) / 9007199254740992.0;
}

static void event(struct out *o, const char *name, int generation, const char *rest)
{
	fprintf(o->events, "{\"event\":\"%s\",\"time\":%.6f,\"mono\":%.6f,\"generation\":%d%s}\n",
		name, begin + o->now, 1000 + o->now, generation, rest);
}

static void begin_generation(struct out *o, int generation, long from)
{
	char rest[512];
	snprintf(rest, sizeof rest,
		 ",\"world\":%d,\"tp\":8,\"cp\":1,\"ep\":1,\"dp\":%d,\"pp\":8,\"step_s\":4.75",
		 o->ranks, o->ranks / 64 ? o->ranks / 64 : 1);
	event(o, "plan", generation, rest);
	snprintf(rest, sizeof rest, ",\"resume\":\"auto\",\"restarts\":%d,\"auth\":\"secret\"",
		 generation - 1);
	event(o, "generation-start", generation, rest);
	for (int r = 0; r < o->ranks; r++) {
		snprintf(rest, sizeof rest,
			 ",\"rank\":%d,\"node\":\"node%04d\",\"pid\":%d,\"start\":2329166,\"pid_"
			 "space\":4026531836,"
			 "\"boot\":\"b7a3901e-3368-4c03-ab43-833a27adb5aa\"",
			 r, r / NODE, 1000 + r);
		event(o, "hello", generation, rest);
	}
	o->now += 20;
	o->restart += generation > 1 ? 20.0 * o->ranks : 0;
	snprintf(rest, sizeof rest, ",\"step\":%ld", from);
	event(o, "ready", generation, rest);
}

static void put_step(struct out *o, int generation, long step, int first)
{
	unsigned long n = (unsigned long)step;
	char rest[256];
	double whole = step_s * (0.97 + 0.06 * noise(n)) + (first ? 9 : 0), left = whole;
	double loss = 1.8 + 9 / pow((double)step + 1, 0.35) + 0.08 * (noise(n + 7) - 0.5);
	static const double shares[] = { 0.005, 0.52, 0.09, 0.12, 0, 0, 0.11, 0.1, 0.02, 0.001 };
	static const char *const parts[] = { "data",      "compute",   "recompute", "tp",
					     "cp",        "ep",        "pp",        "dp",
					     "optimizer", "checkpoint" };
	o->now += whole;
	if (first) {
		snprintf(
			rest, sizeof rest,
			",\"step\":%ld,\"since_start_s\":%.6f,\"loss\":%.17g,\"since_lost_s\":34.5",
			step, 20 + whole, loss);
		event(o, "first-step", generation, rest);
	}
	fprintf(o->metrics,
		"{\"time\":%.6f,\"mono\":%.6f,\"generation\":%d,\"step\":%ld,\"samples\":%ld,"
		"\"tokens\":4194304,\"peak_bytes\":70%09ld,\"loss\":%.17g,\"grad_norm\":%.17g,"
		"\"lr\":%.17g,"
		"\"step_s\":%.17g",
		begin + o->now, 1000 + o->now, generation, step, step * 1024, step % 1000000000,
		step == SPIKE ? 99 : loss, 0.3 + 0.2 * noise(n + 3),
		3e-4 * exp(-(double)step / 3e5), whole);
	for (int i = 0; i < 10; i++) {
		double part = whole * shares[i] * (0.8 + 0.4 * noise(n * 16 + (unsigned long)i));
		fprintf(o->metrics, ",\"%s_s\":%.17g", parts[i], part);
		left -= part;
	}
	fprintf(o->metrics, ",\"other_s\":%.17g,\"predicted_s\":4.75}\n", left);
	o->trained += whole * o->ranks;
}

static void put_time(struct out *o, int generation, long step)
{
	double t = o->trained;
	fprintf(o->time,
		"{\"time\":%.6f,\"mono\":%.6f,\"generation\":%d,\"step\":%ld,\"ranks\":%d,"
		"\"devices\":%d,"
		"\"wall_s\":%.6f,\"total_s\":%.6f,\"goodput\":%.6f,\"start_s\":%.6f,\"data_s\":%."
		"6f,"
		"\"compute_s\":%.6f,\"recompute_s\":%.6f,\"tp_s\":%.6f,\"cp_s\":0,\"ep_s\":0,\"pp_"
		"s\":%.6f,"
		"\"dp_s\":%.6f,\"optimizer_s\":%.6f,\"checkpoint_s\":%.6f,\"other_s\":%.6f,"
		"\"evaluation_s\":0,"
		"\"slowest_s\":%.6f,\"unreported_s\":0,\"lost_s\":%.6f,\"restart_s\":%.6f,\"stop_"
		"s\":0,"
		"\"idle_s\":0}\n",
		begin + o->now, 1000 + o->now, generation, step, o->ranks, o->ranks, o->now,
		20.0 * o->ranks + t + o->lost + o->restart,
		t * 0.99 / (20.0 * o->ranks + t + o->lost + o->restart), 20.0 * o->ranks, t * 0.005,
		t * 0.52, t * 0.09, t * 0.10, t * 0.11, t * 0.09, t * 0.02, t * 0.01, t * 0.025,
		t * 0.03, o->lost, o->restart);
}

static void lose_rank(struct out *o, int generation, long step)
{
	char rest[512];
	int rank = (int)(noise((unsigned long)generation) * o->ranks);
	snprintf(rest, sizeof rest,
		 ",\"rank\":%d,\"node\":\"node%04d\",\"step\":%ld,\"phase\":\"backward\",\"how\":"
		 "\"closed\","
		 "\"code\":\"peer\",\"text\":\"connection "
		 "closed\",\"fault\":\"gpu-fell-off\",\"owner\":\"node\"",
		 rank, rank / NODE, step);
	o->now += 1;
	event(o, "rank-lost", generation, rest);
	snprintf(rest, sizeof rest,
		 ",\"rank\":%d,\"node\":\"node%04d\",\"fault\":\"gpu-fell-off\",\"owner\":\"node\","
		 "\"retry\":\"now\","
		 "\"text\":\"the GPU does not answer any more\",\"remedy\":\"Reset the GPU, or "
		 "replace it.\"",
		 rank, rank / NODE);
	o->now += 4;
	event(o, "fault", generation, rest);
	o->restart += 5.0 * o->ranks;
	o->lost += BACK * step_s * o->ranks;
	o->trained -= BACK * step_s * o->ranks;
}

static void put_others(struct out *o, int generation, long step)
{
	char rest[512];
	if (step % CHECKPOINT == 0) {
		snprintf(rest, sizeof rest,
			 ",\"step\":%ld,\"path\":\"/scratch/runs/long/ckpt/"
			 "step-%08ld\",\"bytes\":2100000000000,"
			 "\"seconds\":%.6f,\"stall_s\":0.31",
			 step, step, 40 + 10 * noise((unsigned long)step));
		event(o, "ckpt", generation, rest);
	}
	if (step % EVALUATION == 0) {
		snprintf(rest, sizeof rest, ",\"step\":%ld,\"loss\":%.17g", step,
			 1.85 + 9 / pow((double)step + 1, 0.35));
		event(o, "eval", generation, rest);
	}
	if (step % 12 == 0)
		put_time(o, generation, step);
	if (step % 6000 == 0)
		fprintf(o->health,
			"{\"time\":%.6f,\"mono\":%.6f,\"generation\":%d,\"rank\":%ld,\"node\":"
			"\"node%04ld\","
			"\"step\":%ld,\"steps\":20,\"slow\":%s,\"pace_s\":%.6f,\"peers_s\":4.1,"
			"\"clock\":2400,"
			"\"gpu_clock\":1700,\"findings\":[]}\n",
			begin + o->now, 1000 + o->now, generation, step / 6000 * 13 % o->ranks,
			step / 6000 * 13 % o->ranks / NODE, step, step % 36000 ? "false" : "true",
			4.1 * (1 + 0.3 * noise((unsigned long)step)));
}

int main(int argc, char **argv)
{
	struct out o = { 0 };
	int generation = 1;
	long from = 0, next;
	if (argc != 5)
		return 2;
	mkdir(argv[1], 0700);
	o.steps = atol(argv[2]);
	o.ranks = atoi(argv[3]);
	o.every = atol(argv[4]);
	if (o.steps < 1 || o.ranks < 1 || o.every <= BACK)
		return 2;
	o.events = create(argv[1], "events.jsonl");
	o.metrics = create(argv[1], "metrics.jsonl");
	o.health = create(argv[1], "health.jsonl");
	o.time = create(argv[1], "time.jsonl");
	begin_generation(&o, generation, 0);
	next = o.every;
	for (long step = 1; step <= o.steps; step++) {
		put_step(&o, generation, step, step == from + 1);
		put_others(&o, generation, step);
		if (step != next || step == o.steps)
			continue;
		next += o.every;
		lose_rank(&o, generation, step);
		from = step - BACK;
		step = from;
		begin_generation(&o, ++generation, from);
	}
	char rest[128];
	snprintf(rest, sizeof rest, ",\"reason\":\"\",\"status\":0,\"step\":%ld,\"restarts\":%d",
		 o.steps, generation - 1);
	event(&o, "done", generation, rest);
	put_time(&o, generation, o.steps);
	FILE *files[] = { o.events, o.metrics, o.health, o.time };
	for (size_t i = 0; i < 4; i++)
		if (fclose(files[i]))
			return 1;
	return 0;
}
