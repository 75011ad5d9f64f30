#include "agent/engine/text/locate.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Other forms of a tokenizer, which transformers can convert to a tokenizer.json. */
static const char *const others[] = { "tokenizer.model", "vocab.json", "tekken.json", "vocab.txt" };

static bool has(const char *folder, const char *name)
{
	char path[PATH_MAX];
	return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
	       !access(path, F_OK);
}

int tokenizer_lacking(const char *folder, struct err *e)
{
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (has(folder, others[i]))
			return err_set(e, ERR_NOTFOUND,
				       "%s: has %s, but no tokenizer.json, which is read; write "
				       "one: python3 -c \"from transformers import "
				       "AutoTokenizer as T; "
				       "T.from_pretrained('FOLDER').save_pretrained('FOLDER')\"",
				       folder, others[i]);
	return err_set(e, ERR_NOTFOUND,
		       "%s: has no tokenizer.json; name the file, or a folder that has one",
		       folder);
}

int tokenizer_open_named(const char *word, struct tokenizer **out, struct err *e)
{
	char path[PATH_MAX];
	struct stat st;
	size_t n = strlen(word);
	if (stat(word, &st) || !S_ISDIR(st.st_mode))
		return tokenizer_open(word, out, e);
	while (n > 1 && word[n - 1] == '/')
		n--;
	if (snprintf(path, sizeof path, "%.*s/tokenizer.json", (int)n, word) >= (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", word);
	return access(path, F_OK) ? tokenizer_lacking(word, e) : tokenizer_open(path, out, e);
}
