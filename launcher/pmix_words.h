/* pmix_words — the words with which Slurm's programs report that they have no plugin for PMIx. */
#ifndef MUSTER_LAUNCHER_PMIX_WORDS_H
#define MUSTER_LAUNCHER_PMIX_WORDS_H

#include <stdbool.h>

/* Whether the text contains some of them. They are those of Slurm 20.11 to 25.05. */
bool launcher_says_no_pmix(const char *text);

#endif
