/*
 * plant — spoils numbers of a step on purpose, for drills and tests (struct train_hooks, plant).
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_PLANT_H
#define MUSTER_AGENT_ENGINE_TRAIN_PLANT_H

struct trainer;

/* Asks the hook what to spoil in this step, and does so. Called before the passes. */
void train_plant_before(struct trainer *t);
/* Called after the passes. */
void train_plant_after(struct trainer *t);
/* Sets what to spoil when the step of t->plant is computed again. */
void train_plant_again(struct trainer *t);

#endif
