#include "launcher/goodput/faults.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/human.h"
#include "base/json_member.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };

static const double year_s = 8760 * 3600.0;

/* Hours for which a node is away: a repair takes a day, a reset of a device an hour. */
enum { REPAIR_H = 24, RESET_H = 1 };

/* Of Llama 3: how many there were in 54 days on 2,048 nodes. */
static const double usual_slowdown = 1.3;

static const struct {
	const char *name;
	int count;
	enum goodput_shows shows;
	double node_out_h;
	const char *doc;
} llama3[] = {
	{ "gpu", 148, SHOWS_CLOSED, REPAIR_H, "faulty GPU" },
	{ "gpu-memory", 72, SHOWS_CLOSED, RESET_H, "GPU HBM3 memory" },
	{ "software", 54, SHOWS_CLOSED, 0, "software bug" },
	{ "network", 35, SHOWS_HANG, REPAIR_H, "network switch or cable" },
	{ "maintenance", 32, SHOWS_SILENT, REPAIR_H, "maintenance of a host that nobody planned" },
	{ "gpu-sram", 19, SHOWS_CLOSED, RESET_H, "GPU SRAM memory" },
	{ "gpu-system", 17, SHOWS_HANG, RESET_H, "GPU system processor" },
	{ "nic", 7, SHOWS_HANG, REPAIR_H, "network adapter" },
	{ "nccl", 7, SHOWS_HANG, 0, "time-out of NCCL's watchdog" },
	{ "silent-corruption", 6, SHOWS_NUMBERS, REPAIR_H, "silent data corruption" },
	{ "gpu-thermal", 6, SHOWS_SLOW, REPAIR_H, "thermal interface or sensor of a GPU" },
	{ "ssd", 3, SHOWS_SILENT, REPAIR_H, "SSD" },
	{ "power", 3, SHOWS_SILENT, REPAIR_H, "power supply" },
	{ "chassis", 2, SHOWS_SILENT, REPAIR_H, "server chassis" },
	{ "io-board", 2, SHOWS_SILENT, REPAIR_H, "IO expansion board" },
	{ "dependency", 2, SHOWS_CLOSED, 0, "a service that the run depends on" },
	{ "cpu", 2, SHOWS_SILENT, REPAIR_H, "CPU" },
	{ "memory", 2, SHOWS_SILENT, REPAIR_H, "system memory" },
	{ "planned", 47, SHOWS_PLANNED, 0, "firmware, configuration or data, planned" },
};

enum { LLAMA3_KINDS = sizeof llama3 / sizeof *llama3, LLAMA3_UNPLANNED = 419 };
static const double llama3_node_s = 54 * 86400.0 * 2048;

/* The lists that are built in. per_node_day: of the faults that nobody planned; 0: as there. */
static const struct {
	const char *name;
	double per_node_day;
} lists[] = { { "llama3", 0 }, { "rsc1", 6.5e-3 }, { "rsc2", 2.34e-3 } };

enum { LISTS = sizeof lists / sizeof *lists };

static const char *const shows_words[] = {
#define SHOWS_WORD(id, word, doc) [SHOWS_##id] = word,
	GOODPUT_SHOWS(SHOWS_WORD)
#undef SHOWS_WORD
};

const char *goodput_shows_word(enum goodput_shows s)
{
	return shows_words[s];
}

double goodput_faults_rate(const struct goodput_faults *f)
{
	double sum = 0;
	for (int i = 0; i < f->n; i++)
		sum += f->of[i].rate;
	return sum;
}

/* What the supervisor holds against the node (launcher/supervise/faults.c), if the list does not say it. */
static bool usually_blames(enum goodput_shows shows, double node_out)
{
	return shows == SHOWS_CLOSED
		       ? node_out > 0
		       : shows == SHOWS_SILENT || shows == SHOWS_HANG || shows == SHOWS_NUMBERS;
}

static void build(int list, struct goodput_faults *out)
{
	double day = lists[list].per_node_day,
	       scale = day > 0 ? day / 86400 / (LLAMA3_UNPLANNED / llama3_node_s) : 1;
	*out = (struct goodput_faults){ .n = LLAMA3_KINDS };
	snprintf(out->name, sizeof out->name, "%s", lists[list].name);
	for (int i = 0; i < LLAMA3_KINDS; i++) {
		struct goodput_fault *f = &out->of[i];
		snprintf(f->name, sizeof f->name, "%s", llama3[i].name);
		snprintf(f->doc, sizeof f->doc, "%s", llama3[i].doc);
		f->rate = scale * llama3[i].count / llama3_node_s;
		f->shows = llama3[i].shows;
		f->node_out = 3600 * llama3[i].node_out_h;
		f->slowdown = usual_slowdown;
		f->blames = usually_blames(f->shows, f->node_out);
	}
}

/* --- Files ---------------------------------------------------------------------------------- */

typedef struct goodput_fault_fields fields_struct;
static const struct fields_row rows[] = { GOODPUT_FAULT_FIELDS(FIELDS_ROW) FIELDS_END };

static int read_shows(const char *word, enum goodput_shows *out, struct err *e)
{
	for (int s = 0; s < SHOWS_COUNT; s++)
		if (!strcmp(word, shows_words[s])) {
			*out = (enum goodput_shows)s;
			return 0;
		}
	return err_set(e, ERR_USAGE,
		       "shows is \"%.40s\"; it must be closed, silent, hang, numbers, slow or "
		       "planned",
		       word);
}

/* Whole characters, as many as there is room for. */
static void copy_text(char *out, size_t size, const char *text)
{
	size_t len = 0, n;
	while ((n = human_character(text + len)) && len + n < size)
		len += n;
	memcpy(out, text, len);
	out[len] = '\0';
	human_plain(out);
}

static int read_fault(const json_t *item, struct goodput_fault *out, struct err *e)
{
	struct goodput_fault_fields f;
	if (fields_read(rows, item, "a fault", &f, e))
		return -1;
	copy_text(out->name, sizeof out->name, f.name);
	copy_text(out->doc, sizeof out->doc, f.has_doc ? f.doc : "");
	out->slowdown = f.has_slowdown ? f.slowdown : usual_slowdown;
	if (!(f.per_node_year >= 0 && f.per_node_year <= 1e9) ||
	    !(f.node_out_h >= 0 && f.node_out_h <= 1e6))
		return err_set(e, ERR_USAGE,
			       "per_node_year must be 0 to 1e9, and node_out_h 0 to 1e6");
	if (!(out->slowdown > 1 && out->slowdown <= 1000))
		return err_set(e, ERR_USAGE, "slowdown must be above 1, and at most 1000");
	out->rate = f.per_node_year / year_s;
	out->node_out = 3600 * f.node_out_h;
	if (read_shows(f.shows, &out->shows, e))
		return -1;
	out->blames = f.has_blames_node ? f.blames_node : usually_blames(out->shows, out->node_out);
	return 0;
}

static int read_list(const json_t *doc, const char *name, struct goodput_faults *out, struct err *e)
{
	const json_t *list = json_object_get(doc, "faults");
	const char *own = json_string_value(json_object_get(doc, "name"));
	size_t i;
	json_t *item;
	*out = (struct goodput_faults){ 0 };
	copy_text(out->name, sizeof out->name, own ? own : name);
	if (!json_array_size(list) || json_array_size(list) > GOODPUT_KINDS)
		return err_set(e, ERR_USAGE, "\"faults\" must be a list of 1 to %d faults",
			       GOODPUT_KINDS);
	json_array_foreach(list, i, item)
	{
		if (read_fault(item, &out->of[out->n++], e))
			return err_prefix(e, "fault %zu", i + 1);
	}
	return 0;
}

int goodput_faults_parse(const char *text, size_t len, const char *name, struct goodput_faults *out,
			 struct err *e)
{
	json_t *doc = NULL;
	struct err why = ERR_INIT;
	int rc = json_member_object(text, len, &doc, &why) || read_list(doc, name, out, &why) ? -1
											      : 0;
	json_decref(doc);
	return rc ? err_set(e, ERR_USAGE, "%s: %s", name, why.text) : 0;
}

static int read_file(const char *path, struct goodput_faults *out, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = file_slurp(path, FILE_MAX, &text, e) ||
				 goodput_faults_parse(text.data ? text.data : "", text.len, path,
						      out, e)
			 ? -1
			 : 0;
	buf_fini(&text);
	return rc;
}

int goodput_faults_open(const char *word, struct goodput_faults *out, struct err *e)
{
	for (int i = 0; i < LISTS; i++)
		if (!strcmp(word, lists[i].name)) {
			build(i, out);
			return 0;
		}
	if (!read_file(word, out, e))
		return 0;
	return e->code == ERR_NOTFOUND
		       ? err_set(e, ERR_USAGE,
				 "%.60s: there is no such list of faults, and no such file; write "
				 "llama3, rsc1, rsc2, or "
				 "the path of a file as muster simulate "
				 "--show-faults llama3 prints it",
				 word)
		       : -1;
}

json_t *goodput_faults_json(const struct goodput_faults *f)
{
	json_t *list = json_array();
	for (int i = 0; i < f->n; i++) {
		const struct goodput_fault *k = &f->of[i];
		const struct goodput_fault_fields fields = {
			.name = k->name,
			.per_node_year = k->rate * year_s,
			.shows = shows_words[k->shows],
			.node_out_h = k->node_out / 3600,
			.has_slowdown = k->shows == SHOWS_SLOW,
			.slowdown = k->slowdown,
			.has_blames_node = k->shows != SHOWS_SLOW && k->shows != SHOWS_PLANNED,
			.blames_node = k->blames,
			.has_doc = k->doc[0],
			.doc = k->doc,
		};
		if (json_array_append_new(list, fields_json(rows, &fields))) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{s:s, s:o}", "name", f->name, "faults", list);
}
