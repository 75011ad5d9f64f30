/*
 * smi: reads the text of `nvidia-smi topo -m`.
 *
 * A header row names the columns: GPU0…, NICs (mlx5_0…, NIC0…, or any other name), then CPU
 * Affinity, NUMA Affinity, GPU NUMA ID (older drivers lack the last ones). Each device has a row,
 * which starts with its name. Its entries are X for the device itself, and SYS, NODE, PHB, PXB,
 * PIX, or NV and the number of parallel links. Rows of NICs have no affinities. A legend of NICs
 * (NIC0: mlx5_0) may follow. Escape sequences may underline headers. Copies of the text lose tabs,
 * and sometimes the blank between two entries.
 *
 * The table does not name the GPU model. The lines of `nvidia-smi -L` ("GPU 0: NVIDIA
 * A100-SXM4-80GB (UUID: …)") name it, if the file has them before or after the table.
 */
#include "topo/read/smi.h"

#include "base/buf.h"
#include "topo/read/read.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = MACHINE_DEVICES + MACHINE_NICS, LINE_BYTES_MAX = 65536 };

/* Copies the text without escape sequences and carriage returns; tabs become blanks. */
static int strip_escapes(const struct topo_text *in, struct buf *out, struct err *e)
{
	for (size_t i = 0; i < in->len; i++) {
		char c = in->text[i];
		if (c == '\033' && i + 1 < in->len && in->text[i + 1] == '[') {
			for (i += 2; i < in->len && !isalpha((unsigned char)in->text[i]);)
				i++;
			continue;
		}
		if (!c || c == '\r' || c == '\033')
			continue;
		buf_add(out, c == '\t' ? " " : &c, 1);
	}
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "%s: no memory to read it", in->file) : 0;
}

static size_t word_at(const char **at)
{
	*at += strspn(*at, " ");
	return strcspn(*at, " \n");
}

static bool is_gpu(const char *word, size_t len)
{
	if (len < 4 || strncmp(word, "GPU", 3))
		return false;
	for (size_t i = 3; i < len; i++)
		if (!isdigit((unsigned char)word[i]))
			return false;
	return true;
}

/* Reads an entry. Returns its length; 0: it is not an entry. The names themselves separate entries
 * that lost the blank between them. */
static size_t entry_at(const char *at, enum link_kind *kind, int *lanes)
{
	static const struct {
		const char *word;
		enum link_kind kind;
	} words[] = { { "NODE", LINK_NODE },   { "SYS", LINK_SYS },   { "SOC", LINK_SYS },
		      { "PHB", LINK_PHB },     { "PXB", LINK_PXB },   { "PIX", LINK_PIX },
		      { "N/A", LINK_UNKNOWN }, { "-", LINK_UNKNOWN }, { "X", LINK_SELF } };
	*lanes = 0;
	if (!strncmp(at, "NV", 2) && isdigit((unsigned char)at[2])) {
		size_t len = 2;
		for (; isdigit((unsigned char)at[len]) && len < 5; len++)
			*lanes = *lanes * 10 + at[len] - '0';
		*kind = LINK_NVLINK;
		return *lanes >= 1 && *lanes <= 2 * SMI_LANES ? len : 0;
	}
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strncmp(at, words[i].word, strlen(words[i].word))) {
			*kind = words[i].kind;
			return strlen(words[i].word);
		}
	return 0;
}

/* Whether a line is a header: it names a GPU, and the next word is not an entry of a row. */
static bool is_header(const char *line)
{
	enum link_kind kind;
	int lanes;
	size_t len = word_at(&line);
	if (!is_gpu(line, len))
		return false;
	line += len;
	len = word_at(&line);
	return len && *line != '\n' && !entry_at(line, &kind, &lanes);
}

static bool sniff_smi(const struct topo_text *in)
{
	/* Only the first 64 KiB: at most a prompt and a title come before the header. */
	struct buf text = BUF_INIT;
	struct topo_text head = *in;
	bool found = false;
	head.len = in->len < LINE_BYTES_MAX ? in->len : LINE_BYTES_MAX;
	if (!strip_escapes(&head, &text, NULL))
		for (const char *line = buf_str(&text); line && !found; line = strchr(line, '\n')) {
			line += *line == '\n';
			found = is_header(line);
		}
	buf_fini(&text);
	return found;
}

static int refuse_line(const struct smi_table *t, int line, const char *why)
{
	return err_set(t->e, ERR_USAGE, "%s:%d: %s", t->file, line, why);
}

/* The length of a name. Names that lost the blank between them are split before "GPU" and "NIC". */
static size_t name_at(const char **at)
{
	size_t len = word_at(at);
	for (size_t i = 1; i + 3 < len; i++)
		if ((!strncmp(*at + i, "GPU", 3) || !strncmp(*at + i, "NIC", 3)) &&
		    isdigit((unsigned char)(*at)[i + 3]) && isdigit((unsigned char)(*at)[i - 1]))
			return i;
	return len;
}

static int read_header(struct smi_table *t, const char *line, int number)
{
	const char *at = line;
	for (size_t len; (len = name_at(&at)) > 0; at += len) {
		if (!strncmp(at, "CPU Affinity", 12) || !strncmp(at, "NUMA Affinity", 13) ||
		    !strncmp(at, "GPU NUMA ID", 11) || !strncmp(at, "CPU", 3))
			break;
		if (t->n == COLUMNS_MAX || (is_gpu(at, len) && t->gpus == MACHINE_DEVICES) ||
		    (!is_gpu(at, len) && t->nics == MACHINE_NICS))
			return refuse_line(t, number, "more columns than a machine has devices");
		struct smi_column *c = &t->columns[t->n++];
		snprintf(c->name, sizeof c->name, "%.*s",
			 (int)(len < TOPO_NAME ? len : TOPO_NAME - 1), at);
		bool gpu = is_gpu(at, len);
		c->gpu = gpu ? t->gpus++ : -1;
		c->nic = gpu ? -1 : t->nics++;
	}
	t->numa = strstr(at, "NUMA Affinity") != NULL;
	t->gpu_numa = t->numa && strstr(at, "GPU NUMA ID") != NULL;
	size_t n = (size_t)t->gpus;
	t->near = calloc(n * (size_t)t->n + 1, sizeof *t->near);
	t->lanes = calloc(n * n + 1, sizeof *t->lanes);
	t->seen = calloc(n + 1, sizeof *t->seen);
	t->found = calloc(n + 1, sizeof *t->found);
	if (!t->near || !t->lanes || !t->seen || !t->found)
		return err_set(t->e, ERR_NOMEM, "%s: no memory for its matrix", t->file);
	return 0;
}

static int words_in(const char *line)
{
	int n = 0;
	for (size_t len; (len = word_at(&line)) > 0; line += len)
		n++;
	return n;
}

/* Whether a word is a kernel CPU list or the number of a NUMA domain. */
static bool is_list(const char *at, size_t len)
{
	return len && isdigit((unsigned char)*at) && strspn(at, "0123456789,-") >= len;
}

static int read_affinities(struct smi_table *t, int gpu, const char *at, int number)
{
	struct found_gpu *g = &t->found[gpu];
	size_t len = word_at(&at), first = len;
	g->numa = -1;
	/* If there are three columns, the first one may be blank: the process may not use the cores
	 * of that GPU. */
	if (t->gpu_numa && words_in(at) == 2)
		first = 0;
	if (is_list(at, first) && first < sizeof g->cpus)
		snprintf(g->cpus, sizeof g->cpus, "%.*s", (int)first, at);
	at += first;
	len = word_at(&at);
	if (!t->numa || !is_list(at, len) || strcspn(at, "-,") < len)
		return 0;
	g->numa = len < 9 ? atoi(at) : MACHINE_NUMA;
	return g->numa >= MACHINE_NUMA
		       ? refuse_line(t, number,
				     "the NUMA affinity is not the number of a NUMA domain")
		       : 0;
}

static int read_row(struct smi_table *t, const char *line, int number)
{
	const char *at = line;
	size_t len = word_at(&at);
	if (!is_gpu(at, len))
		return 0;
	int gpu = -1;
	for (int i = 0; i < t->n && gpu < 0; i++)
		if (t->columns[i].gpu >= 0 && strlen(t->columns[i].name) == len &&
		    !strncmp(t->columns[i].name, at, len))
			gpu = t->columns[i].gpu;
	if (gpu < 0 || t->seen[gpu])
		return refuse_line(
			t, number,
			"a row of a GPU that no column has, or for the second time; give "
			"the table as nvidia-smi wrote it");
	t->seen[gpu] = true;
	at += len;
	for (int i = 0; i < t->n; i++) {
		const struct smi_column *c = &t->columns[i];
		enum link_kind kind;
		int lanes;
		at += strspn(at, " ");
		len = entry_at(at, &kind, &lanes);
		if (!len)
			return refuse_line(
				t, number,
				"fewer entries than columns, or one that is none of X, SYS, "
				"NODE, PHB, PXB, PIX, NV1 to NV36; the table is "
				"cut or broken");
		if ((kind == LINK_SELF) != (c->gpu == gpu))
			return refuse_line(
				t, number,
				"its X is not below its own column; the table is cut or broken");
		if (c->gpu >= 0)
			t->lanes[(size_t)gpu * (size_t)t->gpus + (size_t)c->gpu] = lanes;
		t->near[(size_t)gpu * (size_t)t->n +
			(size_t)(c->gpu >= 0 ? c->gpu : t->gpus + c->nic)] = lanes ? LINK_UNKNOWN
										   : kind;
		at += len;
	}
	return read_affinities(t, gpu, at, number);
}

/* Reads "NIC0: mlx5_0" in the legend at the end. */
static void read_legend(struct smi_table *t, const char *line)
{
	char name[TOPO_NAME], real[TOPO_NAME];
	if (sscanf(line, " %63[^: ]: %63s", name, real) != 2 || strncmp(name, "NIC", 3))
		return;
	for (int i = 0; i < t->n; i++)
		if (t->columns[i].nic >= 0 && !strcmp(t->columns[i].name, name)) {
			memcpy(t->columns[i].name, real, sizeof real);
			return;
		}
}

/* Reads "GPU 0: NVIDIA A100-SXM4-80GB (UUID: …)". Other tools write "GPU 0,1,2,3: NVIDIA H20". */
static void read_name(struct smi_table *t, const char *line)
{
	char name[TOPO_NAME];
	line += strspn(line, " ");
	if (strncmp(line, "GPU ", 4) || !isdigit((unsigned char)line[4]))
		return;
	line += 4 + strspn(line + 4, "0123456789,");
	if (*line != ':' || sscanf(line + 1, " %63[^(]", name) != 1)
		return;
	for (size_t len = strlen(name); len && name[len - 1] == ' ';)
		name[--len] = '\0';
	topo_found_text(t->label, sizeof t->label, name);
	t->model = topo_gpu_of_driver_name(name);
}

static int read_lines(struct smi_table *t, char *text)
{
	int number = 0;
	for (char *line = text, *next; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		number++;
		if (!t->n && is_header(line) && read_header(t, line, number))
			return -1;
		else if (t->n && line[strspn(line, " ")] == 'G' && !is_header(line) &&
			 read_row(t, line, number))
			return -1;
		else if (t->n)
			read_legend(t, line);
		read_name(t, line);
		t->pcie = t->pcie || strstr(line, "topo -mp");
	}
	for (int i = 0; i < t->gpus; i++)
		if (!t->seen[i]) {
			err_set(t->e, ERR_USAGE,
				"%s:%d: the row of GPU%d is missing; the table is cut", t->file,
				number, i);
			return -1;
		}
	return 0;
}

/* A NIC is in the NUMA domain of its nearest GPU, unless the path between them leaves the
 * socket. */
static int numa_of_nic(const struct smi_table *t, const struct found_node *m, int nic)
{
	enum link_kind nearest = LINK_SYS;
	int numa = -1;
	for (int i = 0; i < t->gpus; i++) {
		enum link_kind kind = t->near[(size_t)i * (size_t)t->n + (size_t)(t->gpus + nic)];
		if (kind > nearest) {
			nearest = kind;
			numa = m->gpus[i].numa;
		}
	}
	return numa;
}

/* If there is no column of NUMA domains, devices next to the same cores are in one domain. */
static void numa_by_cpus(const struct smi_table *t, struct found_node *m)
{
	int domains = 0;
	for (int i = 0; i < t->gpus; i++) {
		int same = 0;
		while (strcmp(m->gpus[same].cpus, m->gpus[i].cpus))
			same++;
		m->gpus[i].numa = !m->gpus[i].cpus[0] ? -1
				  : same < i          ? m->gpus[same].numa
						      : domains++;
	}
	topo_found_add_unknown(
		m, domains ? "NUMA domains: devices next to the same cores are taken to be in one"
			   : "NUMA domains");
}

static int take_matrix_row(struct smi_table *t, struct found_node *m)
{
	for (int i = 0; i < t->gpus; i++) {
		struct found_gpu g = t->found[i];
		g.place = g.order = -1;
		g.model = t->model;
		memcpy(g.label, t->label, sizeof g.label);
		if (topo_found_add_gpu(m, &g, t->e) < 0)
			return -1;
	}
	if (!t->numa)
		numa_by_cpus(t, m);
	for (int i = 0; i < t->gpus; i++) {
		m->numa = m->gpus[i].numa >= m->numa ? m->gpus[i].numa + 1 : m->numa;
		if (m->gpus[i].numa < 0)
			topo_found_add_unknown(m, "NUMA domains");
	}
	for (int i = 0; i < t->n; i++) {
		if (t->columns[i].nic < 0)
			continue;
		struct found_nic nic = { .place = -1,
					 .numa = numa_of_nic(t, m, t->columns[i].nic) };
		topo_found_text(nic.name, sizeof nic.name, t->columns[i].name);
		if (topo_found_add_nic(m, &nic, t->e) < 0)
			return -1;
	}
	m->near = t->near;
	t->near = NULL;
	if (!t->model)
		topo_found_add_unknown(
			m,
			t->label[0]
				? "memory and rates of the GPUs, which are of no model known here"
				: "which GPUs these are (the lines of nvidia-smi -L name them), "
				  "their memory and rates");
	if (t->pcie)
		topo_found_add_unknown(m, "NVLinks, which topo -mp leaves out");
	topo_found_add_unknown(m, t->nics ? "the adapters' speeds" : "network adapters");
	topo_found_add_unknown(m, "cores and host memory");
	return topo_smi_links(t, m);
}

static int read_smi(const struct topo_text *in, struct cluster *out, struct err *e)
{
	struct buf text = BUF_INIT;
	struct found_node m;
	struct node_kind kind;
	struct smi_table t = { .file = in->file,
			       .e = e,
			       .columns = calloc(COLUMNS_MAX, sizeof *t.columns) };
	int result = -1;
	topo_found_init(&m, in->file);
	if (!t.columns)
		err_set(e, ERR_NOMEM, "%s: no memory for its columns", in->file);
	else if (!strip_escapes(in, &text, e)) {
		buf_str(&text);
		if (!read_lines(&t, text.data) && !take_matrix_row(&t, &m))
			result = topo_found_finish(&m, in->devices, &kind, e);
	}
	buf_fini(&text);
	free(t.columns);
	free(t.near);
	free(t.lanes);
	free(t.seen);
	free(t.found);
	topo_found_fini(&m);
	return result ? -1 : topo_cluster_of_node("nvidia-smi table", in, &kind, out, e);
}

const struct topo_format topo_format_smi = { .name = "the text of nvidia-smi topo -m",
					     .sniff = sniff_smi,
					     .read = read_smi };
