BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004_trials');
CREATE TABLE alias_moves (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	model_id VARCHAR(40) NOT NULL, 
	alias VARCHAR(63) NOT NULL, 
	version BIGINT NOT NULL, 
	previous BIGINT, 
	cause VARCHAR(12) NOT NULL, 
	actor VARCHAR(40), 
	reason TEXT, 
	at FLOAT NOT NULL, 
	CONSTRAINT fk_alias_moves_model_id FOREIGN KEY(model_id) REFERENCES models (id)
);
INSERT INTO "alias_moves" VALUES(1,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','latest',0,NULL,'create','key_01m8kqxhadjgjbbyvpk3nz6h8h',NULL,1.79595895440101170539e+09);
INSERT INTO "alias_moves" VALUES(2,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','production',0,NULL,'create','key_01m8kqxhadjgjbbyvpk3nz6h8h',NULL,1.79595895440101170539e+09);
INSERT INTO "alias_moves" VALUES(3,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','latest',1,0,'publish',NULL,NULL,1.79595895632298898692e+09);
INSERT INTO "alias_moves" VALUES(4,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','production',1,0,'publish',NULL,NULL,1.79595895632298898692e+09);
INSERT INTO "alias_moves" VALUES(5,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','latest',2,1,'publish',NULL,NULL,1.79595895719701337811e+09);
INSERT INTO "alias_moves" VALUES(6,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','production',2,1,'publish',NULL,NULL,1.79595895719701337811e+09);
INSERT INTO "alias_moves" VALUES(7,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','latest',3,2,'publish',NULL,NULL,1.79595895826898527148e+09);
INSERT INTO "alias_moves" VALUES(8,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','production',3,2,'publish',NULL,NULL,1.79595895826898527148e+09);
INSERT INTO "alias_moves" VALUES(9,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','latest',4,3,'publish',NULL,NULL,1.79595895922798204423e+09);
INSERT INTO "alias_moves" VALUES(10,'mdl_01m8kqxpdg2hvv47ndwvtjxmax','production',4,3,'publish',NULL,NULL,1.79595895922798204423e+09);
CREATE TABLE aliases (
	model_id VARCHAR(40) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	version BIGINT NOT NULL, 
	updated_at FLOAT NOT NULL, 
	CONSTRAINT pk_aliases PRIMARY KEY (model_id, name), 
	CONSTRAINT fk_aliases_model_id FOREIGN KEY(model_id) REFERENCES models (id)
);
INSERT INTO "aliases" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax','latest',4,1.79595895922798204423e+09);
INSERT INTO "aliases" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax','production',4,1.79595895922798204423e+09);
CREATE TABLE audit (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at FLOAT NOT NULL, 
	owner_id VARCHAR(40) NOT NULL, 
	actor VARCHAR(40), 
	action VARCHAR(40) NOT NULL, 
	object VARCHAR(120) NOT NULL, 
	data JSON NOT NULL, 
	model_id VARCHAR(40), 
	CONSTRAINT fk_audit_owner_id FOREIGN KEY(owner_id) REFERENCES owners (id)
);
INSERT INTO "audit" VALUES(1,1.79595895440101170539e+09,'own_01m8kqxh9bmr0a721gnyxfhww7','key_01m8kqxhadjgjbbyvpk3nz6h8h','model.create','mdl_01m8kqxpdg2hvv47ndwvtjxmax','{"name": "edited", "scenario": "class"}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
INSERT INTO "audit" VALUES(2,1.79595895460101079941e+09,'own_01m8kqxh9bmr0a721gnyxfhww7','key_01m8kqxhadjgjbbyvpk3nz6h8h','task.submit','tsk_01m8kqxphch2jx2am6fwsvx6ga','{"model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "number": 1, "sha256": "b43b703e2a8acc48826e4df4226e719c98e424ceed2ea83e7a336770eb479a32", "job": "job_01m8kqxpkah230mmpw18rgbk45"}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
INSERT INTO "audit" VALUES(3,1.79595895486799764628e+09,'own_01m8kqxh9bmr0a721gnyxfhww7','key_01m8kqxhadjgjbbyvpk3nz6h8h','task.submit','tsk_01m8kqxpsn67rwxrwb30p7rh9j','{"model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "number": 2, "sha256": "0091f4bd9b836582818f7e1c940148f296ab4b3f9cbbe7bda6c0ce150def1dfa", "job": "job_01m8kqxpvmp9bbk3c6a8353vkq"}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
INSERT INTO "audit" VALUES(4,1.79595895499199628827e+09,'own_01m8kqxh9bmr0a721gnyxfhww7','key_01m8kqxhadjgjbbyvpk3nz6h8h','task.submit','tsk_01m8kqxpy5pspcsjkx6qbfp58s','{"model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "number": 3, "sha256": "564b966ff93d0135ed998d5481672b28d3760dcd9884dfac2844b020eda237ee", "job": "job_01m8kqxpzgq1qdydjp6pk6g6cq"}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
INSERT INTO "audit" VALUES(5,1.79595895632298898692e+09,'own_01m8kqxh9bmr0a721gnyxfhww7',NULL,'version.publish','ver_01m8kqxr98cybvjdaexcgccb6y','{"model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "version": 1, "status": "published", "job": "job_01m8kqxpkah230mmpw18rgbk45"}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
INSERT INTO "audit" VALUES(6,1.79595895719701337811e+09,'own_01m8kqxh9bmr0a721gnyxfhww7',NULL,'version.publish','ver_01m8kqxs4j5fvw92q09cxecb6v','{"model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "version": 2, "status": "published", "job": "job_01m8kqxpvmp9bbk3c6a8353vkq"}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
INSERT INTO "audit" VALUES(7,1.79595895826898527148e+09,'own_01m8kqxh9bmr0a721gnyxfhww7',NULL,'version.publish','ver_01m8kqxt62qhhd4b7zw4881zn3','{"model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "version": 3, "status": "published", "job": "job_01m8kqxpzgq1qdydjp6pk6g6cq"}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
INSERT INTO "audit" VALUES(8,1.79595895861901330954e+09,'own_01m8kqxh9bmr0a721gnyxfhww7','key_01m8kqxhadjgjbbyvpk3nz6h8h','edit.create','edt_01m8kqxthajewtv5vrxtj20ca2','{"model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "edit": 1, "operations": 1, "tasks": [2], "reason": null}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
INSERT INTO "audit" VALUES(9,1.79595895922798204423e+09,'own_01m8kqxh9bmr0a721gnyxfhww7',NULL,'version.publish','ver_01m8kqxv4p7t6s3e1pdz7khsjn','{"model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "version": 4, "status": "published", "job": "job_01m8kqxtgvqfs0qkg575pgnfh7"}','mdl_01m8kqxpdg2hvv47ndwvtjxmax');
CREATE TABLE bases (
	id VARCHAR(40) NOT NULL, 
	owner_id VARCHAR(40) NOT NULL, 
	architecture JSON NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	created_at FLOAT NOT NULL, 
	CONSTRAINT pk_bases PRIMARY KEY (id), 
	CONSTRAINT fk_bases_owner_id FOREIGN KEY(owner_id) REFERENCES owners (id)
);
CREATE TABLE class_aliases (
	model_id VARCHAR(40) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	"to" VARCHAR(100), 
	edit BIGINT NOT NULL, 
	created_at FLOAT NOT NULL, 
	CONSTRAINT pk_class_aliases PRIMARY KEY (model_id, name), 
	CONSTRAINT fk_class_aliases_model_id FOREIGN KEY(model_id) REFERENCES models (id)
);
INSERT INTO "class_aliases" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax','2','1',1,1.79595895922798204423e+09);
CREATE TABLE damage (
	"key" VARCHAR(512) NOT NULL, 
	kind VARCHAR(8) NOT NULL, 
	tag VARCHAR(200) NOT NULL, 
	found_at FLOAT NOT NULL, 
	CONSTRAINT pk_damage PRIMARY KEY ("key")
);
CREATE TABLE deliveries (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR(40) NOT NULL, 
	webhook_id VARCHAR(40) NOT NULL, 
	owner_id VARCHAR(40) NOT NULL, 
	model_id VARCHAR(40), 
	type VARCHAR(24) NOT NULL, 
	payload TEXT NOT NULL, 
	state VARCHAR(10) NOT NULL, 
	attempts BIGINT NOT NULL, 
	next_at FLOAT, 
	status BIGINT, 
	error TEXT, 
	answer TEXT, 
	created_at FLOAT NOT NULL, 
	sent_at FLOAT, 
	finished_at FLOAT, 
	CONSTRAINT uq_deliveries_id UNIQUE (id)
);
CREATE TABLE edited_parts (
	edit_id VARCHAR(40) NOT NULL, 
	task_id VARCHAR(40) NOT NULL, 
	kind VARCHAR(12) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	until FLOAT NOT NULL, 
	CONSTRAINT pk_edited_parts PRIMARY KEY (edit_id, task_id, kind), 
	CONSTRAINT fk_edited_parts_edit_id FOREIGN KEY(edit_id) REFERENCES edits (id), 
	CONSTRAINT fk_edited_parts_task_id FOREIGN KEY(task_id) REFERENCES tasks (id)
);
INSERT INTO "edited_parts" VALUES('edt_01m8kqxthajewtv5vrxtj20ca2','tsk_01m8kqxpsn67rwxrwb30p7rh9j','traces','52c4a826b7873840e722e3a1931e314572fbc3fc5f78b7f3e466d47e1d0bed68',3186,1.79656375922798204418e+09);
CREATE TABLE edits (
	id VARCHAR(40) NOT NULL, 
	model_id VARCHAR(40) NOT NULL, 
	number BIGINT NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	operations JSON NOT NULL, 
	way VARCHAR(12) NOT NULL, 
	tasks JSON NOT NULL, 
	parent BIGINT NOT NULL, 
	reason TEXT, 
	version BIGINT, 
	journal JSON, 
	undo_until FLOAT, 
	undone_at FLOAT, 
	created_at FLOAT NOT NULL, 
	CONSTRAINT pk_edits PRIMARY KEY (id), 
	CONSTRAINT fk_edits_model_id FOREIGN KEY(model_id) REFERENCES models (id), 
	CONSTRAINT fk_edits_job_id FOREIGN KEY(job_id) REFERENCES jobs (id), 
	CONSTRAINT uq_edits_job_id UNIQUE (job_id), 
	CONSTRAINT uq_edits_model_id_number UNIQUE (model_id, number)
);
INSERT INTO "edits" VALUES('edt_01m8kqxthajewtv5vrxtj20ca2','mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,'job_01m8kqxtgvqfs0qkg575pgnfh7','[{"merge": {"from": ["2"], "into": "1"}}]','recompute','[2]',3,NULL,4,'{"before": [{"number": 2, "classes": {"2": 32, "3": 32}, "n_train": 48, "n_held_out": 16, "train": "f2976d65e0e1bc6c065e3ee5c690e22cc97cfbd5f05747d7198c392d1d255f62", "held_out": "89af9e488379fd32587445d5cb89c76b2cc4b420ed18a463c2232820d7d08be5", "traces": "52c4a826b7873840e722e3a1931e314572fbc3fc5f78b7f3e466d47e1d0bed68", "bytes": {"train": 3600, "held_out": 1296, "traces": 3186}}], "after": [{"number": 2, "classes": {"1": 32, "3": 32}, "n_train": 48, "n_held_out": 16, "train": "f2976d65e0e1bc6c065e3ee5c690e22cc97cfbd5f05747d7198c392d1d255f62", "held_out": "89af9e488379fd32587445d5cb89c76b2cc4b420ed18a463c2232820d7d08be5", "traces": "4daea22acb5a9f8b1f46c1653498202cfe3371de136e862680779000cf9fe15f", "bytes": {"train": 3600, "held_out": 1296, "traces": 3186}}], "cells": [{"version": 2, "task": 2, "correct": 12, "total": 16, "per_class": {"2": [4, 8], "3": [8, 8]}}, {"version": 3, "task": 2, "correct": 13, "total": 16, "per_class": {"2": [5, 8], "3": [8, 8]}}], "measured_otherwise": [2], "reports": [{"task": 2, "report": {"checked": "images", "rejected": [], "rejected_count": 0, "ignored": 0, "ignored_files": [], "bad_entries": [], "bad_entries_count": 0, "duplicates": 0, "duplicate_paths": [], "duplicates_policy": "keep", "duplicates_dropped": 0, "conflicts": [], "conflicts_count": 0, "notes": ["the folder \u201ctest\u201d was taken as the test part", "the folder \u201ctrain\u201d was taken as the training part"], "small": 64, "near_conflicts": [], "near_conflicts_count": 0, "data": {"balance": {"2": {"images": 32, "held_out": 8}, "3": {"images": 32, "held_out": 8}}, "imbalance_ratio": 1.0, "few": [], "conflicts": 0, "near_duplicates": {"within": {"count": 4, "examples": [{"path": "train/2/0132.png", "like": "train/2/0084.png"}, {"path": "train/3/0213.png", "like": "train/3/0143.png"}, {"path": "test/2/0310.png", "like": "test/2/0268.png"}, {"path": "test/3/0259.png", "like": "train/3/0003.png"}]}, "held_out": {"count": 1, "examples": [{"path": "test/3/0259.png", "like": "train/3/0003.png"}]}, "earlier": [], "not_compared": [], "complete": true}, "shift": null, "suspects": [], "suspects_count": 0, "examined": 48, "would_say": [{"label": "2", "said": "1", "images": 24, "surely": 15, "of": 24, "least": 0.9, "version": 1}, {"label": "3", "said": "1", "images": 24, "surely": 9, "of": 24, "least": 0.9, "version": 1}], "mislabelled": [], "findings": [{"kind": "would_say", "holds": false, "text": "Version 1 takes 15 of 24 images of \u201c2\u201d for \u201c1\u201d, 9 of 24 images of \u201c3\u201d for \u201c1\u201d, surely (with a probability of at least 0.9): it does not know these classes yet."}, {"kind": "near_duplicates", "holds": false, "text": "1 image is held out (6.2%) and nearly the same in the training part (test/3/0259.png like train/3/0003.png): accuracy on this task is flattered. Put images of one scene into one part."}, {"kind": "near_duplicates", "holds": false, "text": "4 images (6.2%) nearly repeat others of the batch (train/2/0132.png like train/2/0084.png): they teach little more."}], "cost_s": 0.03}, "classes": {"new": ["2", "3"], "known": [], "look_alike": []}, "conflicts_policy": "reject", "reading": {"options": {}, "known": []}, "conflicts_not_compared": []}}], "relabelled": 0, "removed": 0}',1.79656375922798204418e+09,NULL,1.79595895861901330954e+09);
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(40) NOT NULL, 
	type VARCHAR(16) NOT NULL, 
	data JSON NOT NULL, 
	at FLOAT NOT NULL, 
	CONSTRAINT fk_events_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
INSERT INTO "events" VALUES(1,'job_01m8kqxpkah230mmpw18rgbk45','state','{"state": "queued"}',1.79595895460101079941e+09);
INSERT INTO "events" VALUES(2,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Accepted as task 1: 64 images of 2 classes by their names, 14,618 bytes."}',1.79595895460101079941e+09);
INSERT INTO "events" VALUES(3,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Attempt 1 began; the archive is decoded first."}',1.79595895462301826479e+09);
INSERT INTO "events" VALUES(4,'job_01m8kqxpkah230mmpw18rgbk45','state','{"attempt": 1, "state": "validating"}',1.79595895462301826479e+09);
INSERT INTO "events" VALUES(5,'job_01m8kqxpvmp9bbk3c6a8353vkq','state','{"state": "queued"}',1.79595895486799764628e+09);
INSERT INTO "events" VALUES(6,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Accepted as task 2: 64 images of 2 classes by their names, 14,738 bytes."}',1.79595895486799764628e+09);
INSERT INTO "events" VALUES(7,'job_01m8kqxpzgq1qdydjp6pk6g6cq','state','{"state": "queued"}',1.79595895499199628827e+09);
INSERT INTO "events" VALUES(8,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Accepted as task 3: 64 images of 2 classes by their names, 14,681 bytes."}',1.79595895499199628827e+09);
INSERT INTO "events" VALUES(9,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "validate", "step": 64, "total_steps": 64, "images": 64, "done": 0.0412, "left_s": null}',1.79595895503500556939e+09);
INSERT INTO "events" VALUES(10,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Decoded 64 images of 2 classes: 48 to learn from, 16 held out to measure."}',1.79595895513498497002e+09);
INSERT INTO "events" VALUES(11,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "The folder \u201ctest\u201d was taken as the test part."}',1.79595895513498497002e+09);
INSERT INTO "events" VALUES(12,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "The folder \u201ctrain\u201d was taken as the training part."}',1.79595895513498497002e+09);
INSERT INTO "events" VALUES(13,'job_01m8kqxpkah230mmpw18rgbk45','state','{"state": "running"}',1.79595895513498497002e+09);
INSERT INTO "events" VALUES(14,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "prepare", "done": 0.0412, "left_s": null}',1.7959589551639928818e+09);
INSERT INTO "events" VALUES(15,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "measure", "done": 0.1031, "left_s": null}',1.79595895601701593391e+09);
INSERT INTO "events" VALUES(16,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Measuring version 0, which the task starts from, on the held-out images of this task."}',1.79595895602598786358e+09);
INSERT INTO "events" VALUES(17,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "inspect", "done": 0.5155, "left_s": null}',1.79595895602598786358e+09);
INSERT INTO "events" VALUES(18,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Looking through the images before they are learned: labels that look wrong, and how they differ from earlier ones."}',1.79595895604900121682e+09);
INSERT INTO "events" VALUES(19,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "2 images are held out (12.5%) and nearly the same in the training part (test/0/0229.png like train/0/0079.png): accuracy on this task is flattered. Put images of one scene into one part."}',1.79595895604900121682e+09);
INSERT INTO "events" VALUES(20,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "4 images (6.2%) nearly repeat others of the batch (train/0/0126.png like train/0/0072.png): they teach little more."}',1.79595895604900121682e+09);
INSERT INTO "events" VALUES(21,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "warning", "message": "analytic reads the features of a network with random weights, which tell classes apart badly. Give the model a base, or let its first batch train the network: {\"method\": {\"name\": \"analytic\", \"adapt\": {\"epochs\": 10, \"depth\": 5}}}"}',1.79595895604900121682e+09);
INSERT INTO "events" VALUES(22,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "train"}',1.79595895604900121682e+09);
INSERT INTO "events" VALUES(23,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Learning by analytic: one pass over 48 images of 2 classes; the network stays as it is, and what reads it is solved for."}',1.79595895604900121682e+09);
INSERT INTO "events" VALUES(24,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "consolidate", "done": 0.5567, "left_s": null}',1.79595895604900121682e+09);
INSERT INTO "events" VALUES(25,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "The method takes from this task what it needs to keep it."}',1.79595895604900121682e+09);
INSERT INTO "events" VALUES(26,'job_01m8kqxpkah230mmpw18rgbk45','metric','{"name": "ridge_strength", "step": null, "value": 1.2636208824189814, "data": {}}',1.79595895607901525495e+09);
INSERT INTO "events" VALUES(27,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "head lda: lda 100.0%, ridge 100.0% right in the mean over classes, measured on 48 training images, each by a solution without it"}',1.79595895607901525495e+09);
INSERT INTO "events" VALUES(28,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "evaluate", "done": 0.9175, "left_s": null}',1.79595895607901525495e+09);
INSERT INTO "events" VALUES(29,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Measuring the new version on the held-out images of every task that it can answer."}',1.79595895607901525495e+09);
INSERT INTO "events" VALUES(30,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "The temperature of its probabilities is 6.48, from 48 training images, each left out."}',1.79595895614298582078e+09);
INSERT INTO "events" VALUES(31,'job_01m8kqxpkah230mmpw18rgbk45','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 1, "correct": 16, "total": 16, "per_class": {"0": [8, 8], "1": [8, 8]}}}',1.79595895614298582078e+09);
INSERT INTO "events" VALUES(32,'job_01m8kqxpkah230mmpw18rgbk45','metric','{"name": "knn_probe", "step": null, "value": 1.0, "data": {"task": 1, "correct": 16, "total": 16}}',1.79595895614298582078e+09);
INSERT INTO "events" VALUES(33,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Accuracy of the new version: task 1 100.0% (16 of 16)."}',1.79595895614298582078e+09);
INSERT INTO "events" VALUES(34,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "evaluate", "done": 0.9182, "left_s": null}',1.79595895614298582078e+09);
INSERT INTO "events" VALUES(35,'job_01m8kqxpkah230mmpw18rgbk45','progress','{"phase": "publish", "done": 0.9794, "left_s": null}',1.79595895615400981903e+09);
INSERT INTO "events" VALUES(36,'job_01m8kqxpkah230mmpw18rgbk45','log','{"level": "info", "message": "Version 1 is published and in production."}',1.79595895632298898692e+09);
INSERT INTO "events" VALUES(37,'job_01m8kqxpkah230mmpw18rgbk45','state','{"version": 1, "outcome": "published", "warnings": ["analytic reads the features of a network with random weights, which tell classes apart badly. Give the model a base, or let its first batch train the network: {\"method\": {\"name\": \"analytic\", \"adapt\": {\"epochs\": 10, \"depth\": 5}}}"], "state": "succeeded"}',1.79595895632298898692e+09);
INSERT INTO "events" VALUES(38,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Attempt 1 began; the archive is decoded first."}',1.79595895645801115038e+09);
INSERT INTO "events" VALUES(39,'job_01m8kqxpvmp9bbk3c6a8353vkq','state','{"attempt": 1, "state": "validating"}',1.79595895645801115038e+09);
INSERT INTO "events" VALUES(40,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "validate", "step": 64, "total_steps": 64, "images": 64, "done": 0.1141, "left_s": 1.0}',1.79595895665998172762e+09);
INSERT INTO "events" VALUES(41,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Decoded 64 images of 2 classes: 48 to learn from, 16 held out to measure."}',1.79595895675098896028e+09);
INSERT INTO "events" VALUES(42,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "The folder \u201ctest\u201d was taken as the test part."}',1.79595895675098896028e+09);
INSERT INTO "events" VALUES(43,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "The folder \u201ctrain\u201d was taken as the training part."}',1.79595895675098896028e+09);
INSERT INTO "events" VALUES(44,'job_01m8kqxpvmp9bbk3c6a8353vkq','state','{"state": "running"}',1.79595895675098896028e+09);
INSERT INTO "events" VALUES(45,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "prepare", "done": 0.1141, "left_s": 1.0}',1.79595895676800751689e+09);
INSERT INTO "events" VALUES(46,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "measure", "done": 0.8683, "left_s": 0.1}',1.79595895684601974482e+09);
INSERT INTO "events" VALUES(47,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Measuring version 1, which the task starts from, on the held-out images of this task."}',1.79595895685901498798e+09);
INSERT INTO "events" VALUES(48,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "inspect", "done": 0.8762, "left_s": 0.1}',1.79595895685901498798e+09);
INSERT INTO "events" VALUES(49,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Looking through the images before they are learned: labels that look wrong, and how they differ from earlier ones."}',1.79595895685901498798e+09);
INSERT INTO "events" VALUES(50,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Version 1 takes 15 of 24 images of \u201c2\u201d for \u201c1\u201d, 9 of 24 images of \u201c3\u201d for \u201c1\u201d, surely (with a probability of at least 0.9): it does not know these classes yet."}',1.79595895690298986433e+09);
INSERT INTO "events" VALUES(51,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "1 image is held out (6.2%) and nearly the same in the training part (test/3/0259.png like train/3/0003.png): accuracy on this task is flattered. Put images of one scene into one part."}',1.79595895690298986433e+09);
INSERT INTO "events" VALUES(52,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "4 images (6.2%) nearly repeat others of the batch (train/2/0132.png like train/2/0084.png): they teach little more."}',1.79595895690298986433e+09);
INSERT INTO "events" VALUES(53,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "train", "done": 0.8966, "left_s": 0.1}',1.79595895690298986433e+09);
INSERT INTO "events" VALUES(54,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Learning by analytic: one pass over 48 images of 2 classes; the network stays as it is, and what reads it is solved for."}',1.79595895691099619864e+09);
INSERT INTO "events" VALUES(55,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "consolidate", "done": 0.9019, "left_s": 0.1}',1.79595895691099619864e+09);
INSERT INTO "events" VALUES(56,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "The method takes from this task what it needs to keep it."}',1.79595895691099619864e+09);
INSERT INTO "events" VALUES(57,'job_01m8kqxpvmp9bbk3c6a8353vkq','metric','{"name": "ridge_strength", "step": null, "value": 1.9931306851793573, "data": {}}',1.79595895697001814838e+09);
INSERT INTO "events" VALUES(58,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "head ridge: lda 90.6%, ridge 94.8% right in the mean over classes, measured on 96 training images, each by a solution without it"}',1.79595895697001814838e+09);
INSERT INTO "events" VALUES(59,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "evaluate", "done": 0.9284, "left_s": 0.1}',1.79595895697001814838e+09);
INSERT INTO "events" VALUES(60,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Measuring the new version on the held-out images of every task that it can answer."}',1.79595895697001814838e+09);
INSERT INTO "events" VALUES(61,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "The temperature of its probabilities is 0.204, from 32 held-out images."}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(62,'job_01m8kqxpvmp9bbk3c6a8353vkq','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 1, "correct": 13, "total": 16, "per_class": {"0": [8, 8], "1": [5, 8]}}}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(63,'job_01m8kqxpvmp9bbk3c6a8353vkq','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 2, "correct": 12, "total": 16, "per_class": {"2": [4, 8], "3": [8, 8]}}}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(64,'job_01m8kqxpvmp9bbk3c6a8353vkq','metric','{"name": "accuracy_change", "step": null, "value": -0.1875, "data": {"task": 1, "regressed": 3, "improved": 0, "total": 16}}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(65,'job_01m8kqxpvmp9bbk3c6a8353vkq','metric','{"name": "knn_probe", "step": null, "value": 1.0, "data": {"task": 1, "correct": 16, "total": 16}}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(66,'job_01m8kqxpvmp9bbk3c6a8353vkq','metric','{"name": "knn_probe", "step": null, "value": 0.9375, "data": {"task": 2, "correct": 15, "total": 16}}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(67,'job_01m8kqxpvmp9bbk3c6a8353vkq','metric','{"name": "baseline_ncm", "step": null, "value": 0.9375, "data": {"correct": 30, "total": 32}}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(68,'job_01m8kqxpvmp9bbk3c6a8353vkq','metric','{"name": "baseline_lda", "step": null, "value": 0.90625, "data": {"correct": 29, "total": 32}}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(69,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Accuracy of the new version: task 1 81.2% (13 of 16), task 2 75.0% (12 of 16)."}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(70,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "evaluate", "done": 0.9719, "left_s": 0.0}',1.79595895705000162126e+09);
INSERT INTO "events" VALUES(71,'job_01m8kqxpvmp9bbk3c6a8353vkq','progress','{"phase": "publish", "done": 0.99, "left_s": 0.0}',1.79595895708198690417e+09);
INSERT INTO "events" VALUES(72,'job_01m8kqxpvmp9bbk3c6a8353vkq','log','{"level": "info", "message": "Version 2 is published and in production."}',1.79595895719701337811e+09);
INSERT INTO "events" VALUES(73,'job_01m8kqxpvmp9bbk3c6a8353vkq','state','{"version": 2, "outcome": "published", "warnings": [], "state": "succeeded"}',1.79595895719701337811e+09);
INSERT INTO "events" VALUES(74,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Attempt 1 began; the archive is decoded first."}',1.79595895730101609228e+09);
INSERT INTO "events" VALUES(75,'job_01m8kqxpzgq1qdydjp6pk6g6cq','state','{"attempt": 1, "state": "validating"}',1.79595895730101609228e+09);
INSERT INTO "events" VALUES(76,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "validate", "step": 64, "total_steps": 64, "images": 64, "done": 0.2547, "left_s": 0.3}',1.79595895760598325734e+09);
INSERT INTO "events" VALUES(77,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Decoded 64 images of 2 classes: 48 to learn from, 16 held out to measure."}',1.7959589577080144882e+09);
INSERT INTO "events" VALUES(78,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "The folder \u201ctest\u201d was taken as the test part."}',1.7959589577080144882e+09);
INSERT INTO "events" VALUES(79,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "The folder \u201ctrain\u201d was taken as the training part."}',1.7959589577080144882e+09);
INSERT INTO "events" VALUES(80,'job_01m8kqxpzgq1qdydjp6pk6g6cq','state','{"state": "running"}',1.7959589577080144882e+09);
INSERT INTO "events" VALUES(81,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "prepare", "done": 0.2547, "left_s": 0.3}',1.7959589577319934368e+09);
INSERT INTO "events" VALUES(82,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "measure", "done": 0.4387, "left_s": 0.2}',1.79595895781201720232e+09);
INSERT INTO "events" VALUES(83,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Measuring version 2, which the task starts from, on the held-out images of this task."}',1.79595895782798981661e+09);
INSERT INTO "events" VALUES(84,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "inspect", "done": 0.4693, "left_s": 0.2}',1.79595895782798981661e+09);
INSERT INTO "events" VALUES(85,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Looking through the images before they are learned: labels that look wrong, and how they differ from earlier ones."}',1.79595895792800927157e+09);
INSERT INTO "events" VALUES(86,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "inspect", "done": 0.5624, "left_s": 0.2}',1.79595895792800927157e+09);
INSERT INTO "events" VALUES(87,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Version 2 takes 7 of 24 images of \u201c4\u201d for \u201c1\u201d, surely (with a probability of at least 0.9): it does not know these classes yet."}',1.79595895794301629064e+09);
INSERT INTO "events" VALUES(88,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "1 image is held out (6.2%) and nearly the same in the training part (test/4/0297.png like train/4/0041.png): accuracy on this task is flattered. Put images of one scene into one part."}',1.79595895794301629064e+09);
INSERT INTO "events" VALUES(89,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "9 images (14.1%) nearly repeat others of the batch (train/4/0041.png like train/4/0014.png): they teach little more."}',1.79595895794301629064e+09);
INSERT INTO "events" VALUES(90,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "train", "done": 0.5731, "left_s": 0.2}',1.79595895794301629064e+09);
INSERT INTO "events" VALUES(91,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Learning by analytic: one pass over 48 images of 2 classes; the network stays as it is, and what reads it is solved for."}',1.79595895794301629064e+09);
INSERT INTO "events" VALUES(92,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "consolidate", "done": 0.592, "left_s": 0.2}',1.79595895794800519944e+09);
INSERT INTO "events" VALUES(93,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "The method takes from this task what it needs to keep it."}',1.79595895794800519944e+09);
INSERT INTO "events" VALUES(94,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "ridge_strength", "step": null, "value": 2.8110122543841842, "data": {}}',1.79595895800400972373e+09);
INSERT INTO "events" VALUES(95,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "head lda: lda 84.0%, ridge 81.9% right in the mean over classes, measured on 144 training images, each by a solution without it"}',1.79595895800400972373e+09);
INSERT INTO "events" VALUES(96,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "evaluate", "done": 0.7311, "left_s": 0.1}',1.79595895800400972373e+09);
INSERT INTO "events" VALUES(97,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Measuring the new version on the held-out images of every task that it can answer."}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(98,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "The temperature of its probabilities is 3.03, from 48 held-out images."}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(99,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 1, "correct": 14, "total": 16, "per_class": {"0": [8, 8], "1": [6, 8]}}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(100,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 2, "correct": 13, "total": 16, "per_class": {"2": [5, 8], "3": [8, 8]}}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(101,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 3, "correct": 13, "total": 16, "per_class": {"4": [5, 8], "5": [8, 8]}}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(102,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "accuracy_change", "step": null, "value": 0.0625, "data": {"task": 1, "regressed": 0, "improved": 1, "total": 16}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(103,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "accuracy_change", "step": null, "value": 0.0625, "data": {"task": 2, "regressed": 0, "improved": 1, "total": 16}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(104,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "knn_probe", "step": null, "value": 1.0, "data": {"task": 1, "correct": 16, "total": 16}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(105,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "knn_probe", "step": null, "value": 0.9375, "data": {"task": 2, "correct": 15, "total": 16}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(106,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "knn_probe", "step": null, "value": 0.9375, "data": {"task": 3, "correct": 15, "total": 16}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(107,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "baseline_ncm", "step": null, "value": 0.9375, "data": {"correct": 45, "total": 48}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(108,'job_01m8kqxpzgq1qdydjp6pk6g6cq','metric','{"name": "baseline_lda", "step": null, "value": 0.9166666666666666, "data": {"correct": 44, "total": 48}}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(109,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Accuracy of the new version: task 1 87.5% (14 of 16), task 2 81.2% (13 of 16), task 3 81.2% (13 of 16)."}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(110,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "evaluate", "done": 0.8909, "left_s": 0.0}',1.79595895810801243781e+09);
INSERT INTO "events" VALUES(111,'job_01m8kqxpzgq1qdydjp6pk6g6cq','progress','{"phase": "publish", "done": 0.99, "left_s": 0.0}',1.79595895813098549841e+09);
INSERT INTO "events" VALUES(112,'job_01m8kqxpzgq1qdydjp6pk6g6cq','log','{"level": "info", "message": "Version 3 is published and in production."}',1.79595895826898527148e+09);
INSERT INTO "events" VALUES(113,'job_01m8kqxpzgq1qdydjp6pk6g6cq','state','{"version": 3, "outcome": "published", "warnings": [], "state": "succeeded"}',1.79595895826898527148e+09);
INSERT INTO "events" VALUES(114,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "1 task is edited: kept features are summed up again."}',1.79595895861901330954e+09);
INSERT INTO "events" VALUES(115,'job_01m8kqxtgvqfs0qkg575pgnfh7','state','{"state": "queued"}',1.79595895861901330954e+09);
INSERT INTO "events" VALUES(116,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "Attempt 1 began; the images are decoded already."}',1.79595895864898705482e+09);
INSERT INTO "events" VALUES(117,'job_01m8kqxtgvqfs0qkg575pgnfh7','state','{"attempt": 1, "state": "running"}',1.79595895864898705482e+09);
INSERT INTO "events" VALUES(118,'job_01m8kqxtgvqfs0qkg575pgnfh7','progress','{"phase": "prepare", "done": 0.0, "left_s": null}',1.79595895868298411363e+09);
INSERT INTO "events" VALUES(119,'job_01m8kqxtgvqfs0qkg575pgnfh7','progress','{"phase": "measure", "done": 0.0645, "left_s": null}',1.79595895880199384695e+09);
INSERT INTO "events" VALUES(120,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "Measuring version 3, which the task starts from, on the held-out images of this task."}',1.79595895881800651557e+09);
INSERT INTO "events" VALUES(121,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "result", "step": null, "value": null, "data": {"version": "parent", "task": 2, "correct": 8, "total": 16, "per_class": {"1": [0, 8], "3": [8, 8]}}}',1.79595895881800651557e+09);
INSERT INTO "events" VALUES(122,'job_01m8kqxtgvqfs0qkg575pgnfh7','progress','{"phase": "train", "done": 0.5269, "left_s": null}',1.79595895881800651557e+09);
INSERT INTO "events" VALUES(123,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "Learning by analytic: one pass over 48 images of 2 classes; the network stays as it is, and what reads it is solved for."}',1.79595895882701873783e+09);
INSERT INTO "events" VALUES(124,'job_01m8kqxtgvqfs0qkg575pgnfh7','progress','{"phase": "consolidate", "done": 0.5376, "left_s": null}',1.79595895882701873783e+09);
INSERT INTO "events" VALUES(125,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "The method takes from this task what it needs to keep it."}',1.79595895882701873783e+09);
INSERT INTO "events" VALUES(126,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "ridge_strength", "step": null, "value": 2.9140470036228145, "data": {}}',1.79595895891400289534e+09);
INSERT INTO "events" VALUES(127,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "head lda: lda 85.8%, ridge 77.9% right in the mean over classes, measured on 144 training images, each by a solution without it"}',1.79595895891400289534e+09);
INSERT INTO "events" VALUES(128,'job_01m8kqxtgvqfs0qkg575pgnfh7','progress','{"phase": "evaluate", "done": 0.914, "left_s": null}',1.79595895891400289534e+09);
INSERT INTO "events" VALUES(129,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "Measuring the new version on the held-out images of every task that it can answer."}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(130,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "The temperature of its probabilities is 2.39, from 48 held-out images."}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(131,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 1, "correct": 15, "total": 16, "per_class": {"0": [8, 8], "1": [7, 8]}}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(132,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 2, "correct": 11, "total": 16, "per_class": {"1": [4, 8], "3": [7, 8]}}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(133,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "result", "step": null, "value": null, "data": {"version": "new", "task": 3, "correct": 14, "total": 16, "per_class": {"4": [6, 8], "5": [8, 8]}}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(134,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "accuracy_change", "step": null, "value": 0.0625, "data": {"task": 1, "regressed": 1, "improved": 2, "total": 16}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(135,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "accuracy_change", "step": null, "value": 0.1875, "data": {"task": 2, "regressed": 1, "improved": 4, "total": 16}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(136,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "accuracy_change", "step": null, "value": -0.0625, "data": {"task": 3, "regressed": 1, "improved": 0, "total": 16}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(137,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "knn_probe", "step": null, "value": 1.0, "data": {"task": 1, "correct": 16, "total": 16}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(138,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "knn_probe", "step": null, "value": 0.9375, "data": {"task": 2, "correct": 15, "total": 16}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(139,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "knn_probe", "step": null, "value": 0.9375, "data": {"task": 3, "correct": 15, "total": 16}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(140,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "baseline_ncm", "step": null, "value": 0.8958333333333334, "data": {"correct": 43, "total": 48}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(141,'job_01m8kqxtgvqfs0qkg575pgnfh7','metric','{"name": "baseline_lda", "step": null, "value": 0.9375, "data": {"correct": 45, "total": 48}}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(142,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "Accuracy of the new version: task 1 93.8% (15 of 16), task 2 68.8% (11 of 16), task 3 87.5% (14 of 16)."}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(143,'job_01m8kqxtgvqfs0qkg575pgnfh7','progress','{"phase": "evaluate", "done": 0.9152, "left_s": null}',1.79595895902701759342e+09);
INSERT INTO "events" VALUES(144,'job_01m8kqxtgvqfs0qkg575pgnfh7','progress','{"phase": "publish", "done": 0.9785, "left_s": null}',1.79595895908101058002e+09);
INSERT INTO "events" VALUES(145,'job_01m8kqxtgvqfs0qkg575pgnfh7','log','{"level": "info", "message": "Version 4 is published and in production."}',1.79595895922798204423e+09);
INSERT INTO "events" VALUES(146,'job_01m8kqxtgvqfs0qkg575pgnfh7','state','{"version": 4, "outcome": "published", "warnings": [], "state": "succeeded"}',1.79595895922798204423e+09);
CREATE TABLE export_jobs (
	version_id VARCHAR(40) NOT NULL, 
	format VARCHAR(20) NOT NULL, 
	job_id VARCHAR(40) NOT NULL, 
	fence BIGINT, 
	CONSTRAINT pk_export_jobs PRIMARY KEY (version_id, format), 
	CONSTRAINT fk_export_jobs_version_id FOREIGN KEY(version_id) REFERENCES versions (id), 
	CONSTRAINT uq_export_jobs_job_id UNIQUE (job_id), 
	CONSTRAINT fk_export_jobs_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
CREATE TABLE exporters (
	worker VARCHAR(120) NOT NULL, 
	seen_at FLOAT NOT NULL, 
	CONSTRAINT pk_exporters PRIMARY KEY (worker)
);
INSERT INTO "exporters" VALUES('vm-27365-f93853328990ce54',1.79595895303300476068e+09);
CREATE TABLE exports (
	version_id VARCHAR(40) NOT NULL, 
	format VARCHAR(20) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	created_at FLOAT NOT NULL, 
	CONSTRAINT pk_exports PRIMARY KEY (version_id, format), 
	CONSTRAINT fk_exports_version_id FOREIGN KEY(version_id) REFERENCES versions (id)
);
CREATE TABLE idempotency (
	owner_id VARCHAR(40) NOT NULL, 
	route VARCHAR(200) NOT NULL, 
	"key" VARCHAR(255) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	content_sha256 VARCHAR(64), 
	status BIGINT, 
	headers JSON NOT NULL, 
	body JSON, 
	created_at FLOAT NOT NULL, 
	CONSTRAINT pk_idempotency PRIMARY KEY (owner_id, route, "key"), 
	CONSTRAINT fk_idempotency_owner_id FOREIGN KEY(owner_id) REFERENCES owners (id)
);
INSERT INTO "idempotency" VALUES('own_01m8kqxh9bmr0a721gnyxfhww7','POST /v1/models','a0630b24-b030-4388-b520-de7afb87f2e3','e3383029fb69b1a4f4595d8b0d90da134aab25462551f53b43804f32e80b20a2',NULL,201,'{"Location": "/v1/models/mdl_01m8kqxpdg2hvv47ndwvtjxmax", ":request": ""}','{"id": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "name": "edited", "state": "ready", "job": null, "scenario": "class", "problem": "classification", "architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 8, "channels": 1, "decoding": 2}, "base": "random", "classes": null, "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "gate": {"max_forgetting": null, "min_new_task": null, "min_acc": null, "max_predicted_loss_rise": null, "max_negative_flips": null, "min_coverage": null, "forgotten": null, "confused": null, "class_lost": null, "drifted": null, "learned_nothing": null, "features_collapsed": null}, "answers": null, "keep_training_data": false, "held_out": "keep", "selection": false, "on_held": "stop", "on_rejected": "continue", "on_failed": "continue", "training_data_days": 7.0, "allow_lost_classes": false, "aliases": {"production": 0, "latest": 0}, "line_head": 0, "production_follows": true, "attention": [], "description": null, "tags": [], "rebased_from": null, "created_at": "2026-11-29T13:29:14.401012Z", "warnings": ["The training images of a batch are kept for 7 days after its version is published, so that it can be learned again after a rollback; training_data_days says how long (0: not at all)."]}',1.79595895440101170539e+09);
INSERT INTO "idempotency" VALUES('own_01m8kqxh9bmr0a721gnyxfhww7','POST /v1/models/{model}/tasks','322f8c01-2e22-4273-a859-0de088445a95','19730fb1f54ac54aaa61ceb87a2beb56a2560863a6070078a5dd7d8b1ced3662','b43b703e2a8acc48826e4df4226e719c98e424ceed2ea83e7a336770eb479a32',202,'{"Location": "/v1/jobs/job_01m8kqxpkah230mmpw18rgbk45", "Retry-After": "1", ":request": "1a1b43d95f52013140f27025310f421867a3a5838851523f325d0e87ecfc4eb4"}','{"task": {"id": "tsk_01m8kqxphch2jx2am6fwsvx6ga", "number": 1, "name": null, "sha256": "b43b703e2a8acc48826e4df4226e719c98e424ceed2ea83e7a336770eb479a32", "bytes": 14618, "classes": {"0": 32, "1": 32}, "n_train": 48, "n_held_out": 16, "report": {"classes": {"new": ["0", "1"], "known": [], "look_alike": []}, "data": {"balance": {"0": {"images": 32, "held_out": null}, "1": {"images": 32, "held_out": null}}, "imbalance_ratio": 1.0, "few": []}, "reading": {"options": {}, "known": []}, "checked": "names and sizes", "rejected": [], "rejected_count": 0, "ignored": 0, "ignored_files": [], "bad_entries": [], "bad_entries_count": 0, "duplicates": 0, "duplicate_paths": [], "duplicates_policy": "keep", "duplicates_dropped": 0, "conflicts": [], "conflicts_count": 0, "notes": ["the folder \u201ctest\u201d was taken as the test part", "the folder \u201ctrain\u201d was taken as the training part"], "conflicts_policy": "reject"}, "job": "job_01m8kqxpkah230mmpw18rgbk45", "state": "queued", "standing": "queued", "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "version": null, "accuracy_when_learned": null, "accuracy_now": null, "training_data_until": null, "can_relearn": true, "data_deleted_at": null, "created_at": "2026-11-29T13:29:14.601011Z", "warnings": []}, "job": {"id": "job_01m8kqxpkah230mmpw18rgbk45", "kind": "learn", "model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "task": 1, "state": "queued", "is_terminal": false, "attempt": 0, "progress": {"done": 0.0, "left_s": null, "phase": null, "epoch": null, "step": null, "total_steps": null, "images_per_s": null, "eta_s": null}, "error": null, "version": null, "outcome": null, "waiting_for": null, "warnings": [], "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "retry_of": null, "report": null, "created_at": "2026-11-29T13:29:14.601011Z", "started_at": null, "finished_at": null}, "expected_s": null}',1.79595895460101079941e+09);
INSERT INTO "idempotency" VALUES('own_01m8kqxh9bmr0a721gnyxfhww7','POST /v1/models/{model}/tasks','dd58a2e2-3b18-4132-88f2-a4f56064f0e5','0f8d602582150202f6cfc8c48193c82aef6030754a86944b0da02b36671a71e9','0091f4bd9b836582818f7e1c940148f296ab4b3f9cbbe7bda6c0ce150def1dfa',202,'{"Location": "/v1/jobs/job_01m8kqxpvmp9bbk3c6a8353vkq", "Retry-After": "1", ":request": "1a1b43d95f52013140f27025310f421867a3a5838851523f325d0e87ecfc4eb4"}','{"task": {"id": "tsk_01m8kqxpsn67rwxrwb30p7rh9j", "number": 2, "name": null, "sha256": "0091f4bd9b836582818f7e1c940148f296ab4b3f9cbbe7bda6c0ce150def1dfa", "bytes": 14738, "classes": {"2": 32, "3": 32}, "n_train": 48, "n_held_out": 16, "report": {"classes": {"new": ["2", "3"], "known": [], "look_alike": []}, "data": {"balance": {"2": {"images": 32, "held_out": null}, "3": {"images": 32, "held_out": null}}, "imbalance_ratio": 1.0, "few": []}, "reading": {"options": {}, "known": []}, "checked": "names and sizes", "rejected": [], "rejected_count": 0, "ignored": 0, "ignored_files": [], "bad_entries": [], "bad_entries_count": 0, "duplicates": 0, "duplicate_paths": [], "duplicates_policy": "keep", "duplicates_dropped": 0, "conflicts": [], "conflicts_count": 0, "notes": ["the folder \u201ctest\u201d was taken as the test part", "the folder \u201ctrain\u201d was taken as the training part"], "conflicts_policy": "reject"}, "job": "job_01m8kqxpvmp9bbk3c6a8353vkq", "state": "queued", "standing": "queued", "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "version": null, "accuracy_when_learned": null, "accuracy_now": null, "training_data_until": null, "can_relearn": true, "data_deleted_at": null, "created_at": "2026-11-29T13:29:14.867998Z", "warnings": []}, "job": {"id": "job_01m8kqxpvmp9bbk3c6a8353vkq", "kind": "learn", "model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "task": 2, "state": "queued", "is_terminal": false, "attempt": 0, "progress": {"done": 0.0, "left_s": null, "phase": null, "epoch": null, "step": null, "total_steps": null, "images_per_s": null, "eta_s": null}, "error": null, "version": null, "outcome": null, "waiting_for": null, "warnings": [], "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "retry_of": null, "report": null, "created_at": "2026-11-29T13:29:14.867998Z", "started_at": null, "finished_at": null}, "expected_s": null}',1.79595895486799764628e+09);
INSERT INTO "idempotency" VALUES('own_01m8kqxh9bmr0a721gnyxfhww7','POST /v1/models/{model}/tasks','65b4bc1d-b139-4a5e-8a4a-4f8d3e8569ac','33cc9fc637d2f4e9c9c335fbadab2fe91a05af07b1ddeb8a2a7d0e3f606b669f','564b966ff93d0135ed998d5481672b28d3760dcd9884dfac2844b020eda237ee',202,'{"Location": "/v1/jobs/job_01m8kqxpzgq1qdydjp6pk6g6cq", "Retry-After": "1", ":request": "1a1b43d95f52013140f27025310f421867a3a5838851523f325d0e87ecfc4eb4"}','{"task": {"id": "tsk_01m8kqxpy5pspcsjkx6qbfp58s", "number": 3, "name": null, "sha256": "564b966ff93d0135ed998d5481672b28d3760dcd9884dfac2844b020eda237ee", "bytes": 14681, "classes": {"4": 32, "5": 32}, "n_train": 48, "n_held_out": 16, "report": {"classes": {"new": ["4", "5"], "known": [], "look_alike": []}, "data": {"balance": {"4": {"images": 32, "held_out": null}, "5": {"images": 32, "held_out": null}}, "imbalance_ratio": 1.0, "few": []}, "reading": {"options": {}, "known": []}, "checked": "names and sizes", "rejected": [], "rejected_count": 0, "ignored": 0, "ignored_files": [], "bad_entries": [], "bad_entries_count": 0, "duplicates": 0, "duplicate_paths": [], "duplicates_policy": "keep", "duplicates_dropped": 0, "conflicts": [], "conflicts_count": 0, "notes": ["the folder \u201ctest\u201d was taken as the test part", "the folder \u201ctrain\u201d was taken as the training part"], "conflicts_policy": "reject"}, "job": "job_01m8kqxpzgq1qdydjp6pk6g6cq", "state": "queued", "standing": "queued", "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "version": null, "accuracy_when_learned": null, "accuracy_now": null, "training_data_until": null, "can_relearn": true, "data_deleted_at": null, "created_at": "2026-11-29T13:29:14.991996Z", "warnings": []}, "job": {"id": "job_01m8kqxpzgq1qdydjp6pk6g6cq", "kind": "learn", "model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "task": 3, "state": "queued", "is_terminal": false, "attempt": 0, "progress": {"done": 0.0, "left_s": null, "phase": null, "epoch": null, "step": null, "total_steps": null, "images_per_s": null, "eta_s": null}, "error": null, "version": null, "outcome": null, "waiting_for": null, "warnings": [], "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "retry_of": null, "report": null, "created_at": "2026-11-29T13:29:14.991996Z", "started_at": null, "finished_at": null}, "expected_s": null}',1.79595895499199628827e+09);
CREATE TABLE jobs (
	id VARCHAR(40) NOT NULL, 
	model_id VARCHAR(40) NOT NULL, 
	owner_id VARCHAR(40) NOT NULL, 
	task_id VARCHAR(40), 
	task_number BIGINT, 
	place BIGINT, 
	state VARCHAR(12) NOT NULL, 
	revision BIGINT NOT NULL, 
	recipe_override JSON NOT NULL, 
	recipe JSON NOT NULL, 
	retry_of VARCHAR(40), 
	attempt BIGINT NOT NULL, 
	strikes BIGINT NOT NULL, 
	fence BIGINT, 
	worker VARCHAR(120), 
	lease_until FLOAT, 
	rung_at FLOAT, 
	not_before FLOAT, 
	parent_version BIGINT, 
	snapshot JSON, 
	progress JSON NOT NULL, 
	error JSON, 
	version BIGINT, 
	created_at FLOAT NOT NULL, 
	started_at FLOAT, 
	finished_at FLOAT, 
	gate JSON, 
	anytime JSON, 
	again BOOLEAN DEFAULT 0 NOT NULL, 
	warnings JSON DEFAULT '[]' NOT NULL, 
	kind VARCHAR(12) DEFAULT 'learn' NOT NULL, 
	report JSON, 
	archive_key TEXT, 
	archive_sha256 VARCHAR(64), 
	archive_bytes BIGINT, 
	out_of_memory BIGINT DEFAULT '0' NOT NULL, 
	device VARCHAR(4) DEFAULT 'any' NOT NULL, 
	gpus BIGINT DEFAULT '1' NOT NULL, 
	resume_on VARCHAR(4), choose VARCHAR(8), chosen_trial BIGINT, choose_until FLOAT, 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT uq_jobs_model_id_place UNIQUE (model_id, place), 
	CONSTRAINT fk_jobs_model_id FOREIGN KEY(model_id) REFERENCES models (id), 
	CONSTRAINT fk_jobs_owner_id FOREIGN KEY(owner_id) REFERENCES owners (id), 
	CONSTRAINT fk_jobs_task_id FOREIGN KEY(task_id) REFERENCES tasks (id)
);
INSERT INTO "jobs" VALUES('job_01m8kqxpkah230mmpw18rgbk45','mdl_01m8kqxpdg2hvv47ndwvtjxmax','own_01m8kqxh9bmr0a721gnyxfhww7','tsk_01m8kqxphch2jx2am6fwsvx6ga',1,1,'succeeded',12,'{}','{"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}',NULL,1,0,NULL,NULL,NULL,NULL,NULL,0,NULL,'{"phase": "publish", "at": 1795958956.1540098, "images_per_s": null, "eta_s": null, "done": 0.9794, "left_s": null, "costs": {"validate": 0.129, "prepare": 0.853, "measure": 0.009, "inspect": 0.023, "consolidate": 0.03, "evaluate": 0.075}, "expected": {"validate": 4.0, "prepare": 6.0, "measure": 40.0, "inspect": 3.0, "train": 1.0, "consolidate": 35.0, "evaluate": 6.0, "publish": 2.0}, "is_measured": false, "heard_at": 1795958956.1540098, "fence": 1}',NULL,1,1.79595895460101079941e+09,1.79595895462301826479e+09,1.79595895632298898692e+09,'{"max_forgetting": null, "min_new_task": null, "min_acc": null, "max_predicted_loss_rise": null, "max_negative_flips": null, "min_coverage": null, "forgotten": null, "confused": null, "class_lost": null, "drifted": null, "learned_nothing": null, "features_collapsed": null}',NULL,0,'[]','learn',NULL,NULL,NULL,NULL,0,'any',1,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('job_01m8kqxpvmp9bbk3c6a8353vkq','mdl_01m8kqxpdg2hvv47ndwvtjxmax','own_01m8kqxh9bmr0a721gnyxfhww7','tsk_01m8kqxpsn67rwxrwb30p7rh9j',2,2,'succeeded',13,'{}','{"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}',NULL,1,0,NULL,NULL,NULL,NULL,NULL,1,NULL,'{"phase": "publish", "at": 1795958957.081987, "images_per_s": null, "eta_s": null, "done": 0.99, "left_s": 0.0, "costs": {"validate": 0.108, "prepare": 0.078, "measure": 0.013, "inspect": 0.044, "train": 0.008, "consolidate": 0.059, "evaluate": 0.112}, "expected": {"validate": 0.129, "prepare": 0.853, "measure": 0.009, "inspect": 0.023, "train": 0.006, "consolidate": 0.03, "evaluate": 0.075, "publish": 0.006}, "is_measured": true, "heard_at": 1795958957.081987, "fence": 2}',NULL,2,1.79595895486799764628e+09,1.79595895645801115038e+09,1.79595895719701337811e+09,'{"max_forgetting": null, "min_new_task": null, "min_acc": null, "max_predicted_loss_rise": null, "max_negative_flips": null, "min_coverage": null, "forgotten": null, "confused": null, "class_lost": null, "drifted": null, "learned_nothing": null, "features_collapsed": null}',NULL,0,'[]','learn',NULL,NULL,NULL,NULL,0,'any',1,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('job_01m8kqxpzgq1qdydjp6pk6g6cq','mdl_01m8kqxpdg2hvv47ndwvtjxmax','own_01m8kqxh9bmr0a721gnyxfhww7','tsk_01m8kqxpy5pspcsjkx6qbfp58s',3,3,'succeeded',14,'{}','{"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}',NULL,1,0,NULL,NULL,NULL,NULL,NULL,2,NULL,'{"phase": "publish", "at": 1795958958.1309855, "images_per_s": null, "eta_s": null, "done": 0.99, "left_s": 0.0, "costs": {"validate": 0.126, "prepare": 0.08, "measure": 0.016, "inspect": 0.115, "train": 0.005, "consolidate": 0.056, "evaluate": 0.127}, "expected": {"validate": 0.108, "prepare": 0.078, "measure": 0.013, "inspect": 0.044, "train": 0.008, "consolidate": 0.059, "evaluate": 0.112, "publish": 0.002}, "is_measured": true, "heard_at": 1795958958.1309855, "fence": 3}',NULL,3,1.79595895499199628827e+09,1.79595895730101609228e+09,1.79595895826898527148e+09,'{"max_forgetting": null, "min_new_task": null, "min_acc": null, "max_predicted_loss_rise": null, "max_negative_flips": null, "min_coverage": null, "forgotten": null, "confused": null, "class_lost": null, "drifted": null, "learned_nothing": null, "features_collapsed": null}',NULL,0,'[]','learn',NULL,NULL,NULL,NULL,0,'any',1,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('job_01m8kqxtgvqfs0qkg575pgnfh7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','own_01m8kqxh9bmr0a721gnyxfhww7','tsk_01m8kqxpsn67rwxrwb30p7rh9j',2,4,'succeeded',10,'{}','{"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}',NULL,1,0,NULL,NULL,NULL,NULL,NULL,3,NULL,'{"phase": "publish", "at": 1795958959.0810106, "images_per_s": null, "eta_s": null, "done": 0.9785, "left_s": null, "costs": {"prepare": 0.119, "measure": 0.016, "train": 0.009, "consolidate": 0.087, "evaluate": 0.167}, "expected": {"prepare": 6.0, "measure": 40.0, "inspect": 3.0, "train": 1.0, "consolidate": 35.0, "evaluate": 6.0, "publish": 2.0}, "is_measured": false, "heard_at": 1795958959.0810106, "fence": 4}',NULL,4,1.79595895861901330954e+09,1.79595895864898705482e+09,1.79595895922798204423e+09,'{"max_forgetting": null, "min_new_task": null, "min_acc": null, "max_predicted_loss_rise": null, "max_negative_flips": null, "min_coverage": null, "forgotten": null, "confused": null, "class_lost": null, "drifted": null, "learned_nothing": null, "features_collapsed": null}',NULL,1,'[]','edit',NULL,NULL,NULL,NULL,0,'any',1,NULL,NULL,NULL,NULL);
CREATE TABLE keys (
	id VARCHAR(40) NOT NULL, 
	owner_id VARCHAR(40) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	prefix VARCHAR(16) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	scope VARCHAR(8) NOT NULL, 
	expires_at FLOAT, 
	revoked_at FLOAT, 
	last_used_at FLOAT, 
	created_at FLOAT NOT NULL, 
	CONSTRAINT pk_keys PRIMARY KEY (id), 
	CONSTRAINT fk_keys_owner_id FOREIGN KEY(owner_id) REFERENCES owners (id), 
	CONSTRAINT uq_keys_prefix UNIQUE (prefix)
);
INSERT INTO "keys" VALUES('key_01m8kqxhadjgjbbyvpk3nz6h8h','own_01m8kqxh9bmr0a721gnyxfhww7','first admin key','yn3blfl4vz9r','eac7658386e29ae609e69260a6b193e34b2bb3bbb5dd9b9f9df801fc5dcc4a8e','admin',NULL,NULL,1.79595895959763383865e+09,1.79595894916201376917e+09);
CREATE TABLE measurements (
	model_id VARCHAR(40) NOT NULL, 
	version BIGINT NOT NULL, 
	name VARCHAR(20) NOT NULL, 
	task BIGINT NOT NULL, 
	value FLOAT, 
	detail JSON, 
	CONSTRAINT pk_measurements PRIMARY KEY (model_id, version, name, task), 
	CONSTRAINT fk_measurements_model_id FOREIGN KEY(model_id) REFERENCES models (id)
);
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,'row',0,1.0,'{"last": 1.0, "forgetting": null}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,'update_norm',0,0.0,'{"backbone": 0.0, "head": 0.0, "relative": null}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,'drift',0,0.0,NULL);
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,'changes',0,NULL,'{}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,'knn_probe',0,NULL,'{"all": [16, 16], "before": {"parent": [16, 16]}, "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,'knn_probe',-1,NULL,'{"1": [16, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,'features',0,NULL,'{"ancestors": [], "missing": "the batch leaves the features as they were"}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'row',0,0.78125,'{"last": 0.78125, "forgetting": 0.1875}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'update_norm',0,0.0,'{"backbone": 0.0, "head": 0.0, "relative": null}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'drift',0,0.0,NULL);
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'changes',0,NULL,'{}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'changes',-1,NULL,'{"1": {"improved": 0, "regressed": 3, "total": 16}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'knn_probe',0,NULL,'{"all": [30, 32], "before": {"base": [15, 16], "parent": [15, 16]}, "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'knn_probe',-1,NULL,'{"1": [16, 16], "2": [15, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'baseline_ncm',0,NULL,'{"all": [30, 32], "own": [25, 32], "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'baseline_ncm',-1,NULL,'{"1": [15, 16], "2": [15, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'baseline_lda',0,NULL,'{"all": [29, 32], "own": [25, 32], "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'baseline_lda',-1,NULL,'{"1": [15, 16], "2": [14, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'baseline_later',0,NULL,'{}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'baseline_later',-1,NULL,'{"1": {"2": 1}, "2": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,'features',0,NULL,'{"ancestors": [], "missing": "the batch leaves the features as they were"}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'row',0,8.3333333333333337034e-01,'{"last": 0.8333333333333334, "forgetting": 0.03125}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'update_norm',0,0.0,'{"backbone": 0.0, "head": 0.0, "relative": null}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'drift',0,0.0,NULL);
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'changes',0,NULL,'{}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'changes',-1,NULL,'{"1": {"improved": 1, "regressed": 0, "total": 16}, "2": {"improved": 1, "regressed": 0, "total": 16}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'knn_probe',0,NULL,'{"all": [45, 48], "before": {"base": [15, 16], "parent": [15, 16]}, "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'knn_probe',-1,NULL,'{"1": [16, 16], "2": [15, 16], "3": [15, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'baseline_ncm',0,NULL,'{"all": [45, 48], "own": [40, 48], "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'baseline_ncm',-1,NULL,'{"1": [15, 16], "2": [15, 16], "3": [15, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'baseline_lda',0,NULL,'{"all": [44, 48], "own": [40, 48], "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'baseline_lda',-1,NULL,'{"1": [15, 16], "2": [14, 16], "3": [15, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'baseline_later',0,NULL,'{}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'baseline_later',-1,NULL,'{"1": {"2": 1}, "2": {}, "3": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,'features',0,NULL,'{"ancestors": [], "missing": "the batch leaves the features as they were"}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'row',0,8.3333333333333337034e-01,'{"last": 0.8333333333333334, "forgetting": 0.041666666666666664}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'update_norm',0,0.0,'{"backbone": 0.0, "head": 0.0, "relative": null}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'drift',0,0.0,NULL);
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'knn_probe',0,NULL,'{"all": [46, 48], "before": {"base": [15, 16], "parent": [15, 16]}, "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'knn_probe',-1,NULL,'{"1": [16, 16], "2": [15, 16], "3": [15, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'baseline_ncm',0,NULL,'{"all": [43, 48], "own": [40, 48], "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'baseline_ncm',-1,NULL,'{"1": [16, 16], "2": [12, 16], "3": [15, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'baseline_lda',0,NULL,'{"all": [45, 48], "own": [40, 48], "tasks": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'baseline_lda',-1,NULL,'{"1": [16, 16], "2": [15, 16], "3": [14, 16]}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'baseline_later',0,NULL,'{}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'baseline_later',-1,NULL,'{"1": {}, "2": {}, "3": {}}');
INSERT INTO "measurements" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,'features',0,NULL,'{"ancestors": [], "missing": "the batch leaves the features as they were"}');
CREATE TABLE models (
	id VARCHAR(40) NOT NULL, 
	owner_id VARCHAR(40) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	scenario VARCHAR(8) NOT NULL, 
	architecture JSON NOT NULL, 
	image JSON NOT NULL, 
	base JSON NOT NULL, 
	classes JSON, 
	recipe JSON NOT NULL, 
	gate JSON NOT NULL, 
	keep_training_data BOOLEAN NOT NULL, 
	held_out VARCHAR(8) NOT NULL, 
	warnings JSON NOT NULL, 
	fence BIGINT NOT NULL, 
	next_task BIGINT NOT NULL, 
	next_place BIGINT NOT NULL, 
	next_version BIGINT NOT NULL, 
	created_at FLOAT NOT NULL, 
	deleted_at FLOAT, 
	training_data_days FLOAT DEFAULT '7.0' NOT NULL, 
	on_held VARCHAR(8) DEFAULT 'stop' NOT NULL, 
	on_rejected VARCHAR(8) DEFAULT 'continue' NOT NULL, 
	on_failed VARCHAR(8) DEFAULT 'continue' NOT NULL, 
	allow_lost_classes BOOLEAN DEFAULT 0 NOT NULL, 
	head BIGINT DEFAULT '0' NOT NULL, 
	production_follows BOOLEAN DEFAULT 1 NOT NULL, 
	base_job VARCHAR(40), 
	description TEXT, 
	tags JSON, 
	answers JSON, 
	rebased_from VARCHAR(40), 
	rebased_at FLOAT, 
	totals_sha256 VARCHAR(64), 
	totals_bytes BIGINT, 
	totals_key VARCHAR(64), problem VARCHAR(40), selection BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_models PRIMARY KEY (id), 
	CONSTRAINT ck_models_scenario CHECK (scenario IN ('data', 'task', 'class')), 
	CONSTRAINT fk_models_owner_id FOREIGN KEY(owner_id) REFERENCES owners (id)
);
INSERT INTO "models" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax','own_01m8kqxh9bmr0a721gnyxfhww7','edited','class','{"name": "mlp", "hidden": [16]}','{"size": 8, "channels": 1, "decoding": 2}','"random"',NULL,'{"balanced_batches": true, "preset": "from-random", "method": {"name": "analytic", "projection": 16}}','{"max_forgetting": null, "min_new_task": null, "min_acc": null, "max_predicted_loss_rise": null, "max_negative_flips": null, "min_coverage": null, "forgotten": null, "confused": null, "class_lost": null, "drifted": null, "learned_nothing": null, "features_collapsed": null}',0,'keep','["The training images of a batch are kept for 7 days after its version is published, so that it can be learned again after a rollback; training_data_days says how long (0: not at all)."]',4,4,5,5,1.79595895440101170539e+09,NULL,7.0,'stop','continue','continue',0,4,1,NULL,NULL,NULL,NULL,NULL,NULL,'a0fa377a8889530c1fc3f23b6df8bf52df57bcd3fccf4af5ab79d70ba908c82f',14936,'442bc6688b92401c834d483ec63d93d0b5f9fdfcad09591dd9f31671c617366b',NULL,0);
CREATE TABLE owner_events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	owner_id VARCHAR(40) NOT NULL, 
	model_id VARCHAR(40) NOT NULL, 
	job_id VARCHAR(40), 
	type VARCHAR(16) NOT NULL, 
	data JSON NOT NULL, 
	at FLOAT NOT NULL
);
INSERT INTO "owner_events" VALUES(1,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'version','{"version": 0, "task": null, "status": "published"}',1.79595895440101170539e+09);
INSERT INTO "owner_events" VALUES(2,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "latest", "version": 0, "previous": null, "cause": "create"}',1.79595895440101170539e+09);
INSERT INTO "owner_events" VALUES(3,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "production", "version": 0, "previous": null, "cause": "create"}',1.79595895440101170539e+09);
INSERT INTO "owner_events" VALUES(4,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpkah230mmpw18rgbk45','job','{"state": "queued", "kind": "learn", "task": 1, "version": null, "outcome": null}',1.79595895460101079941e+09);
INSERT INTO "owner_events" VALUES(5,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpkah230mmpw18rgbk45','job','{"state": "validating", "kind": "learn", "task": 1, "version": null, "outcome": null}',1.79595895462301826479e+09);
INSERT INTO "owner_events" VALUES(6,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpvmp9bbk3c6a8353vkq','job','{"state": "queued", "kind": "learn", "task": 2, "version": null, "outcome": null}',1.79595895486799764628e+09);
INSERT INTO "owner_events" VALUES(7,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpzgq1qdydjp6pk6g6cq','job','{"state": "queued", "kind": "learn", "task": 3, "version": null, "outcome": null}',1.79595895499199628827e+09);
INSERT INTO "owner_events" VALUES(8,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpkah230mmpw18rgbk45','job','{"state": "running", "kind": "learn", "task": 1, "version": null, "outcome": null}',1.79595895513498497002e+09);
INSERT INTO "owner_events" VALUES(9,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpkah230mmpw18rgbk45','version','{"version": 1, "task": 1, "status": "published"}',1.79595895632298898692e+09);
INSERT INTO "owner_events" VALUES(10,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "latest", "version": 1, "previous": 0, "cause": "publish"}',1.79595895632298898692e+09);
INSERT INTO "owner_events" VALUES(11,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "production", "version": 1, "previous": 0, "cause": "publish"}',1.79595895632298898692e+09);
INSERT INTO "owner_events" VALUES(12,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpkah230mmpw18rgbk45','job','{"state": "succeeded", "kind": "learn", "task": 1, "version": 1, "outcome": "published"}',1.79595895632298898692e+09);
INSERT INTO "owner_events" VALUES(13,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpvmp9bbk3c6a8353vkq','job','{"state": "validating", "kind": "learn", "task": 2, "version": null, "outcome": null}',1.79595895645801115038e+09);
INSERT INTO "owner_events" VALUES(14,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpvmp9bbk3c6a8353vkq','job','{"state": "running", "kind": "learn", "task": 2, "version": null, "outcome": null}',1.79595895675098896028e+09);
INSERT INTO "owner_events" VALUES(15,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpvmp9bbk3c6a8353vkq','version','{"version": 2, "task": 2, "status": "published"}',1.79595895719701337811e+09);
INSERT INTO "owner_events" VALUES(16,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "latest", "version": 2, "previous": 1, "cause": "publish"}',1.79595895719701337811e+09);
INSERT INTO "owner_events" VALUES(17,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "production", "version": 2, "previous": 1, "cause": "publish"}',1.79595895719701337811e+09);
INSERT INTO "owner_events" VALUES(18,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpvmp9bbk3c6a8353vkq','job','{"state": "succeeded", "kind": "learn", "task": 2, "version": 2, "outcome": "published"}',1.79595895719701337811e+09);
INSERT INTO "owner_events" VALUES(19,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpzgq1qdydjp6pk6g6cq','job','{"state": "validating", "kind": "learn", "task": 3, "version": null, "outcome": null}',1.79595895730101609228e+09);
INSERT INTO "owner_events" VALUES(20,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpzgq1qdydjp6pk6g6cq','job','{"state": "running", "kind": "learn", "task": 3, "version": null, "outcome": null}',1.7959589577080144882e+09);
INSERT INTO "owner_events" VALUES(21,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpzgq1qdydjp6pk6g6cq','version','{"version": 3, "task": 3, "status": "published"}',1.79595895826898527148e+09);
INSERT INTO "owner_events" VALUES(22,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "latest", "version": 3, "previous": 2, "cause": "publish"}',1.79595895826898527148e+09);
INSERT INTO "owner_events" VALUES(23,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "production", "version": 3, "previous": 2, "cause": "publish"}',1.79595895826898527148e+09);
INSERT INTO "owner_events" VALUES(24,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxpzgq1qdydjp6pk6g6cq','job','{"state": "succeeded", "kind": "learn", "task": 3, "version": 3, "outcome": "published"}',1.79595895826898527148e+09);
INSERT INTO "owner_events" VALUES(25,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxtgvqfs0qkg575pgnfh7','job','{"state": "queued", "kind": "edit", "task": 2, "version": null, "outcome": null}',1.79595895861901330954e+09);
INSERT INTO "owner_events" VALUES(26,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxtgvqfs0qkg575pgnfh7','job','{"state": "running", "kind": "edit", "task": 2, "version": null, "outcome": null}',1.79595895864898705482e+09);
INSERT INTO "owner_events" VALUES(27,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxtgvqfs0qkg575pgnfh7','version','{"version": 4, "task": 2, "status": "published"}',1.79595895922798204423e+09);
INSERT INTO "owner_events" VALUES(28,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "latest", "version": 4, "previous": 3, "cause": "publish"}',1.79595895922798204423e+09);
INSERT INTO "owner_events" VALUES(29,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax',NULL,'alias','{"alias": "production", "version": 4, "previous": 3, "cause": "publish"}',1.79595895922798204423e+09);
INSERT INTO "owner_events" VALUES(30,'own_01m8kqxh9bmr0a721gnyxfhww7','mdl_01m8kqxpdg2hvv47ndwvtjxmax','job_01m8kqxtgvqfs0qkg575pgnfh7','job','{"state": "succeeded", "kind": "edit", "task": 2, "version": 4, "outcome": "published"}',1.79595895922798204423e+09);
CREATE TABLE owners (
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(63) NOT NULL, 
	created_at FLOAT NOT NULL, 
	bytes BIGINT, 
	bytes_at FLOAT, 
	usage JSON, 
	usage_at FLOAT, 
	claimed_at FLOAT, 
	overtook BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_owners PRIMARY KEY (id), 
	CONSTRAINT uq_owners_name UNIQUE (name)
);
INSERT INTO "owners" VALUES('own_01m8kqxh9bmr0a721gnyxfhww7','admin',1.79595894916201376917e+09,NULL,NULL,'{"at": 1795958953.2709837, "models": 0, "tasks": 0, "versions": 0, "jobs": {}, "bytes": {"versions": 0, "archives": 0, "datasets": 0, "exports": 0, "bases": 0, "uploads": 0}}',1.7959589532630176544e+09,1.79595895864898705482e+09,0);
CREATE TABLE parts (
	version_id VARCHAR(40) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	position BIGINT NOT NULL, 
	type VARCHAR(40) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	deleted_at FLOAT, 
	CONSTRAINT pk_parts PRIMARY KEY (version_id, name), 
	CONSTRAINT fk_parts_version_id FOREIGN KEY(version_id) REFERENCES versions (id)
);
INSERT INTO "parts" VALUES('ver_01m8kqxr98cybvjdaexcgccb6y','backbone.1',0,'backbone','5b19b309115affe2a0d2ed4541cd7b5a4e652dbe94362d596f89b856551c9749',4320,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxr98cybvjdaexcgccb6y','head',1,'head','39c32cf002cfee09f254c206d3678d660cd087e27017a257a05c3fc60be2ade6',280,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxr98cybvjdaexcgccb6y','statistics.1',2,'statistics','4ee274faa5aa5a707ed3988b33350baa8d91243dfa7790b92f3a9d6f6210372c',1640,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxr98cybvjdaexcgccb6y','features.1',3,'features','eb450ddd06d7cd4d23a796cdcf214a340bd6c0c37d2be4ca77e615c6a2f81830',4440,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxr98cybvjdaexcgccb6y','projection',4,'projection','716e14fb8e5cd75c1faf0b4e709deb8943da3fd4aa2d8f0db963c1f4afaa1637',1104,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxr98cybvjdaexcgccb6y','own',5,'own','153f6929cb4f4dd66250fa4f7820cf939d4001153bcdcc5c38e41d2b3ea0f794',264,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxs4j5fvw92q09cxecb6v','backbone.1',0,'backbone','5b19b309115affe2a0d2ed4541cd7b5a4e652dbe94362d596f89b856551c9749',4320,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxs4j5fvw92q09cxecb6v','head',1,'head','46869d45f395b44f16ad45c6fd3389c3c9b818c4383a07a7079646938d310d1f',416,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxs4j5fvw92q09cxecb6v','statistics.2',2,'statistics','d5f795e8af1deca02d3cfdc559235d87716fef23382006eb9bc570e32a326541',1640,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxs4j5fvw92q09cxecb6v','features.2',3,'features','6e1c2c4a5e6fcf44bff852ce969cdb83fbed482e7ea7f73316ed74dc9785df41',4440,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxs4j5fvw92q09cxecb6v','projection',4,'projection','716e14fb8e5cd75c1faf0b4e709deb8943da3fd4aa2d8f0db963c1f4afaa1637',1104,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxs4j5fvw92q09cxecb6v','own',5,'own','7cbe17bc1682e089293e0fef2568ff3cfccf3be7a8c2a64417e5d34a5257b56f',408,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxt62qhhd4b7zw4881zn3','backbone.1',0,'backbone','5b19b309115affe2a0d2ed4541cd7b5a4e652dbe94362d596f89b856551c9749',4320,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxt62qhhd4b7zw4881zn3','head',1,'head','e1dd37a5c1da24722afb3deca3b0e611a31e8738d6b5e75e8a534d7e3d7156c5',552,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxt62qhhd4b7zw4881zn3','statistics.3',2,'statistics','fa3de3a840ea961e4b4a01682f2fb31c9ec3c195b4e133b0ac284bd3774b5c73',1640,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxt62qhhd4b7zw4881zn3','features.3',3,'features','f42dc752762b2d24a3f5b118d5130758bb69ed9ae09dd37f8e248e3b3dca960b',4440,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxt62qhhd4b7zw4881zn3','projection',4,'projection','716e14fb8e5cd75c1faf0b4e709deb8943da3fd4aa2d8f0db963c1f4afaa1637',1104,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxt62qhhd4b7zw4881zn3','own',5,'own','0d84c9650f88f5fa6be78c460ac44bc9a234f08de3ecdfba2809c66b82eea09e',544,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','backbone.1',0,'backbone','5b19b309115affe2a0d2ed4541cd7b5a4e652dbe94362d596f89b856551c9749',4320,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','head',1,'head','3e318fdab014deb030c43a704e9863aa3e2cfd667b77a7bb55ac937bb4db948a',484,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','statistics.2',2,'statistics','b144cc5cdaba457660e3fe2fee654fda8725564f88ae7d140ab657d8f372eae9',1640,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','features.2',3,'features','94bf745e1fb9783edd0610fd6940d1c04348b8d0ef1d14c994bf8b5e61bfd0e6',4440,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','projection',4,'projection','716e14fb8e5cd75c1faf0b4e709deb8943da3fd4aa2d8f0db963c1f4afaa1637',1104,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','own',5,'own','d90263b4b267c3c6c7ff4a06fa44344a78c91cc6842633da99485dfe1378f683',476,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','features.1',6,'features','eb450ddd06d7cd4d23a796cdcf214a340bd6c0c37d2be4ca77e615c6a2f81830',4440,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','features.3',7,'features','c6825119be55e819bd0ca6bf6847f16fce7b8d7cbedbc395e1f6ff97c4b1287f',4440,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','statistics.1',8,'statistics','4ee274faa5aa5a707ed3988b33350baa8d91243dfa7790b92f3a9d6f6210372c',1640,NULL);
INSERT INTO "parts" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','statistics.3',9,'statistics','163c1802c36dfa0c5041938791d6fb89154e8d7f21ae26842e6659b05343d563',1640,NULL);
CREATE TABLE predict_keys (
	key_id VARCHAR(40) NOT NULL, 
	model_id VARCHAR(40) NOT NULL, 
	alias VARCHAR(63) NOT NULL, 
	requests_per_s FLOAT NOT NULL, 
	images_per_day BIGINT NOT NULL, 
	day BIGINT NOT NULL, 
	images BIGINT NOT NULL, 
	free_at FLOAT NOT NULL, 
	CONSTRAINT pk_predict_keys PRIMARY KEY (key_id), 
	CONSTRAINT fk_predict_keys_key_id FOREIGN KEY(key_id) REFERENCES keys (id), 
	CONSTRAINT fk_predict_keys_model_id FOREIGN KEY(model_id) REFERENCES models (id)
);
CREATE TABLE results (
	model_id VARCHAR(40) NOT NULL, 
	version BIGINT NOT NULL, 
	task BIGINT NOT NULL, 
	correct BIGINT NOT NULL, 
	total BIGINT NOT NULL, 
	per_class JSON NOT NULL, 
	best FLOAT, 
	answers VARCHAR(64), 
	answers_bytes BIGINT, 
	CONSTRAINT pk_results PRIMARY KEY (model_id, version, task), 
	CONSTRAINT fk_results_model_id FOREIGN KEY(model_id) REFERENCES models (id)
);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,1,16,16,'{"0": [8, 8], "1": [8, 8]}',NULL,'44d25d3e130ec2281271f63b0da786bc49a5bdc8cf23be6933e79650f9a563e1',640);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,1,13,16,'{"0": [8, 8], "1": [5, 8]}',1.0,'3374872063ddbdc0e0ad13585c01a0b350f7c00f7be953425421a6e6c0d1c576',1226);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,2,12,16,'{"1": [4, 8], "3": [8, 8]}',NULL,NULL,NULL);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,1,14,16,'{"0": [8, 8], "1": [6, 8]}',1.0,'843fdece1ba056f7b7f32f9f3aaa502dcbb579afa26bee1894fa801b6b9ef718',1816);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,2,13,16,'{"1": [5, 8], "3": [8, 8]}',0.75,NULL,NULL);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,3,13,16,'{"4": [5, 8], "5": [8, 8]}',NULL,'843fdece1ba056f7b7f32f9f3aaa502dcbb579afa26bee1894fa801b6b9ef718',1816);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,1,15,16,'{"0": [8, 8], "1": [7, 8]}',1.0,'4c2afe4bca6f6d4ead20d91663c4c96674ee494623540d2f81c5b8021e13bf98',1791);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,2,11,16,'{"1": [4, 8], "3": [7, 8]}',0.8125,'4c2afe4bca6f6d4ead20d91663c4c96674ee494623540d2f81c5b8021e13bf98',1791);
INSERT INTO "results" VALUES('mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,3,14,16,'{"4": [6, 8], "5": [8, 8]}',0.8125,'4c2afe4bca6f6d4ead20d91663c4c96674ee494623540d2f81c5b8021e13bf98',1791);
CREATE TABLE scrub (
	id BIGINT NOT NULL, 
	worker VARCHAR(120), 
	fence BIGINT NOT NULL, 
	lease_until FLOAT NOT NULL, 
	cursor VARCHAR(512) NOT NULL, 
	began_at FLOAT, 
	ended_at FLOAT, 
	objects BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	CONSTRAINT pk_scrub PRIMARY KEY (id)
);
INSERT INTO "scrub" VALUES(1,NULL,1,0.0,'',1.79595895316199207305e+09,1.79595895327999591824e+09,0,0);
CREATE TABLE sessions (
	hash VARCHAR(64) NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	created_at FLOAT NOT NULL, 
	seen_at FLOAT NOT NULL, 
	expires_at FLOAT NOT NULL, 
	CONSTRAINT pk_sessions PRIMARY KEY (hash), 
	CONSTRAINT fk_sessions_key_id FOREIGN KEY(key_id) REFERENCES keys (id)
);
CREATE TABLE tasks (
	id VARCHAR(40) NOT NULL, 
	model_id VARCHAR(40) NOT NULL, 
	number BIGINT NOT NULL, 
	name VARCHAR(100), 
	sha256 VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	archive_key TEXT, 
	media_type VARCHAR(32) NOT NULL, 
	classes JSON NOT NULL, 
	n_train BIGINT, 
	n_held_out BIGINT, 
	report JSON NOT NULL, 
	train_sha256 VARCHAR(64), 
	held_out_sha256 VARCHAR(64), 
	train_deleted_at FLOAT, 
	held_out_deleted_at FLOAT, 
	data_deleted_at FLOAT, 
	warnings JSON NOT NULL, 
	created_at FLOAT NOT NULL, 
	train_until FLOAT, 
	standing VARCHAR(12), 
	standing_at FLOAT, 
	stops BOOLEAN DEFAULT 0 NOT NULL, 
	traces_sha256 VARCHAR(64), 
	traces_bytes BIGINT, 
	features_sha256 VARCHAR(64), 
	features_bytes BIGINT, 
	features_key VARCHAR(64), 
	answers_key VARCHAR(64), 
	content_sha256 VARCHAR(64), 
	content_turn BIGINT, selection_sha256 VARCHAR(64), n_selection BIGINT, 
	CONSTRAINT pk_tasks PRIMARY KEY (id), 
	CONSTRAINT uq_tasks_model_id_number UNIQUE (model_id, number), 
	CONSTRAINT fk_tasks_model_id FOREIGN KEY(model_id) REFERENCES models (id)
);
INSERT INTO "tasks" VALUES('tsk_01m8kqxphch2jx2am6fwsvx6ga','mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,NULL,'b43b703e2a8acc48826e4df4226e719c98e424ceed2ea83e7a336770eb479a32',14618,NULL,'zip','{"0": 32, "1": 32}',48,16,'{"checked": "images", "rejected": [], "rejected_count": 0, "ignored": 0, "ignored_files": [], "bad_entries": [], "bad_entries_count": 0, "duplicates": 0, "duplicate_paths": [], "duplicates_policy": "keep", "duplicates_dropped": 0, "conflicts": [], "conflicts_count": 0, "notes": ["the folder \u201ctest\u201d was taken as the test part", "the folder \u201ctrain\u201d was taken as the training part"], "small": 64, "near_conflicts": [], "near_conflicts_count": 0, "data": {"balance": {"0": {"images": 32, "held_out": 8}, "1": {"images": 32, "held_out": 8}}, "imbalance_ratio": 1.0, "few": [], "conflicts": 0, "near_duplicates": {"within": {"count": 4, "examples": [{"path": "train/0/0126.png", "like": "train/0/0072.png"}, {"path": "test/0/0229.png", "like": "train/0/0079.png"}, {"path": "test/0/0252.png", "like": "train/0/0140.png"}, {"path": "test/0/0266.png", "like": "test/0/0229.png"}]}, "held_out": {"count": 2, "examples": [{"path": "test/0/0229.png", "like": "train/0/0079.png"}, {"path": "test/0/0252.png", "like": "train/0/0140.png"}]}, "earlier": [], "not_compared": [], "complete": true}, "shift": null, "suspects": [], "suspects_count": 0, "examined": 48, "would_say": [], "findings": [{"kind": "near_duplicates", "holds": false, "text": "2 images are held out (12.5%) and nearly the same in the training part (test/0/0229.png like train/0/0079.png): accuracy on this task is flattered. Put images of one scene into one part."}, {"kind": "near_duplicates", "holds": false, "text": "4 images (6.2%) nearly repeat others of the batch (train/0/0126.png like train/0/0072.png): they teach little more."}], "cost_s": 0.02}, "classes": {"new": ["0", "1"], "known": [], "look_alike": []}, "conflicts_policy": "reject", "reading": {"options": {}, "known": []}, "conflicts_not_compared": []}','1db7377fd0fddaafba4f920bc4a0863ddff0f1a1be824948bebc1fa2fffc54c3','603f27abcd86a6ba64867a25474d748653dacaba87ce05599ba6dcdfe5dd543e',NULL,NULL,NULL,'["analytic reads the features of a network with random weights, which tell classes apart badly. Give the model a base, or let its first batch train the network: {\"method\": {\"name\": \"analytic\", \"adapt\": {\"epochs\": 10, \"depth\": 5}}}"]',1.79595895460101079941e+09,1.79656375632298898701e+09,'learned',1.79595895632298898692e+09,0,'2dd50284976f80ffec406f85b291e6d5ce559f7f8c62801b356837bf5ac6b235',3186,'61c730f0b0eef3d7f79e7940229d2bd6934ef8507b3444a69807df0302f0d924',1104,'c1363e2edb07797ffb899c4570f677631cee92cf5c070ce390230e5524fe20b7','8b582ed54e7027382772c722e6d21b14437f76228de9469a32873c2c794690ce','9ba6afded6d63eb4f90fe57fccbd78070cfd8922d243b978b7073e5116bd3597',0,NULL,NULL);
INSERT INTO "tasks" VALUES('tsk_01m8kqxpsn67rwxrwb30p7rh9j','mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,NULL,'0091f4bd9b836582818f7e1c940148f296ab4b3f9cbbe7bda6c0ce150def1dfa',14738,NULL,'zip','{"1": 32, "3": 32}',48,16,'{"checked": "images", "rejected": [], "rejected_count": 0, "ignored": 0, "ignored_files": [], "bad_entries": [], "bad_entries_count": 0, "duplicates": 0, "duplicate_paths": [], "duplicates_policy": "keep", "duplicates_dropped": 0, "conflicts": [], "conflicts_count": 0, "notes": ["the folder \u201ctest\u201d was taken as the test part", "the folder \u201ctrain\u201d was taken as the training part"], "small": 64, "near_conflicts": [], "near_conflicts_count": 0, "data": {"balance": {"1": {"images": 32, "held_out": 8}, "3": {"images": 32, "held_out": 8}}, "imbalance_ratio": 1.0, "few": [], "conflicts": 0, "near_duplicates": {"within": {"count": 4, "examples": [{"path": "train/2/0132.png", "like": "train/2/0084.png"}, {"path": "train/3/0213.png", "like": "train/3/0143.png"}, {"path": "test/2/0310.png", "like": "test/2/0268.png"}, {"path": "test/3/0259.png", "like": "train/3/0003.png"}]}, "held_out": {"count": 1, "examples": [{"path": "test/3/0259.png", "like": "train/3/0003.png"}]}, "earlier": [], "not_compared": [], "complete": true}, "shift": null, "suspects": [], "suspects_count": 0, "examined": 48, "would_say": [{"label": "3", "said": "1", "images": 24, "surely": 9, "of": 24, "least": 0.9, "version": 1}], "mislabelled": [], "findings": [{"kind": "would_say", "holds": false, "text": "Version 1 takes 15 of 24 images of \u201c2\u201d for \u201c1\u201d, 9 of 24 images of \u201c3\u201d for \u201c1\u201d, surely (with a probability of at least 0.9): it does not know these classes yet."}, {"kind": "near_duplicates", "holds": false, "text": "1 image is held out (6.2%) and nearly the same in the training part (test/3/0259.png like train/3/0003.png): accuracy on this task is flattered. Put images of one scene into one part."}, {"kind": "near_duplicates", "holds": false, "text": "4 images (6.2%) nearly repeat others of the batch (train/2/0132.png like train/2/0084.png): they teach little more."}], "cost_s": 0.03}, "classes": {"new": ["1", "3"], "known": [], "look_alike": []}, "conflicts_policy": "reject", "reading": {"options": {}, "known": []}, "conflicts_not_compared": []}','f2976d65e0e1bc6c065e3ee5c690e22cc97cfbd5f05747d7198c392d1d255f62','89af9e488379fd32587445d5cb89c76b2cc4b420ed18a463c2232820d7d08be5',NULL,NULL,NULL,'[]',1.79595895486799764628e+09,1.79656375922798204418e+09,'learned',1.79595895719701337811e+09,0,'4daea22acb5a9f8b1f46c1653498202cfe3371de136e862680779000cf9fe15f',3186,'6128fa7e0ef5db34ba4a159e4b0423502001092d4e1243e77d57537453041ce1',1104,'83ee8bda7f79ff363899b4e816751b2a66fbcafbd93478df08726128f6c0b22e','54fd34a97df07db01e2eae04c7a3b7dbbac6179c6ea2a0a7cfe321602ccbbdb3','a5860c65010609f1cb8f94ae2af5ba54fc75ee1fd9b3bb9d823d880cc9aeecb4',0,NULL,NULL);
INSERT INTO "tasks" VALUES('tsk_01m8kqxpy5pspcsjkx6qbfp58s','mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,NULL,'564b966ff93d0135ed998d5481672b28d3760dcd9884dfac2844b020eda237ee',14681,NULL,'zip','{"4": 32, "5": 32}',48,16,'{"checked": "images", "rejected": [], "rejected_count": 0, "ignored": 0, "ignored_files": [], "bad_entries": [], "bad_entries_count": 0, "duplicates": 0, "duplicate_paths": [], "duplicates_policy": "keep", "duplicates_dropped": 0, "conflicts": [], "conflicts_count": 0, "notes": ["the folder \u201ctest\u201d was taken as the test part", "the folder \u201ctrain\u201d was taken as the training part"], "small": 64, "near_conflicts": [], "near_conflicts_count": 0, "data": {"balance": {"4": {"images": 32, "held_out": 8}, "5": {"images": 32, "held_out": 8}}, "imbalance_ratio": 1.0, "few": [], "conflicts": 0, "near_duplicates": {"within": {"count": 9, "examples": [{"path": "train/4/0041.png", "like": "train/4/0014.png"}, {"path": "train/4/0124.png", "like": "train/4/0014.png"}, {"path": "train/4/0228.png", "like": "train/4/0225.png"}, {"path": "train/4/0239.png", "like": "train/4/0228.png"}, {"path": "train/5/0035.png", "like": "train/5/0033.png"}, {"path": "train/5/0176.png", "like": "train/5/0162.png"}, {"path": "train/5/0201.png", "like": "train/5/0162.png"}, {"path": "test/4/0270.png", "like": "test/4/0260.png"}, {"path": "test/4/0297.png", "like": "train/4/0041.png"}]}, "held_out": {"count": 1, "examples": [{"path": "test/4/0297.png", "like": "train/4/0041.png"}]}, "earlier": [], "not_compared": [], "complete": true}, "shift": {"of": "all images", "images": 48, "mmd2": 0.1454188160497506, "p": 0.003992015968063872, "p_features": 0.001996007984031936, "p_light": 0.03992015968063872, "per_class": []}, "suspects": [], "suspects_count": 0, "examined": 48, "would_say": [{"label": "4", "said": "1", "images": 19, "surely": 7, "of": 24, "least": 0.9, "version": 2}, {"label": "5", "said": "3", "images": 13, "surely": 0, "of": 24, "least": 0.9, "version": 2}], "mislabelled": [], "findings": [{"kind": "would_say", "holds": false, "text": "Version 2 takes 7 of 24 images of \u201c4\u201d for \u201c1\u201d, surely (with a probability of at least 0.9): it does not know these classes yet."}, {"kind": "near_duplicates", "holds": false, "text": "1 image is held out (6.2%) and nearly the same in the training part (test/4/0297.png like train/4/0041.png): accuracy on this task is flattered. Put images of one scene into one part."}, {"kind": "near_duplicates", "holds": false, "text": "9 images (14.1%) nearly repeat others of the batch (train/4/0041.png like train/4/0014.png): they teach little more."}], "cost_s": 0.1}, "classes": {"new": ["4", "5"], "known": [], "look_alike": []}, "conflicts_policy": "reject", "reading": {"options": {}, "known": []}, "conflicts_not_compared": []}','94292d98c6e1119143e1418252311e0e54acfb50544615ec1ede9b3ef2bf7a10','1ba9a0abb4951463cc54e88bdc986189f917f28bd17466ad1d124d6d16453eb7',NULL,NULL,NULL,'[]',1.79595895499199628827e+09,1.79656375826898527144e+09,'learned',1.79595895826898527148e+09,0,'22143206a8c9107a6501315930062e0e175d04aa0c262e7c9bc7f2ab51841d16',3188,'35408d3c56e501b644788c24d06c522ffa5bbc4477904d672d802f6e7ba20061',1104,'178b80e95701979ef6eed9e92822da48b52a19a5d5efc0ae99a20e3f5152c1ca','a29ffb4e0d1a8d212f318fcc7b6d2ded8d8d24b79f27393c794e67719428c435','c0d9fbd760d2fced47c554f4d5ecfcb6899d53ff10daa2e74423ede89564bfbd',0,NULL,NULL);
CREATE TABLE trial_files (
	job_id VARCHAR(40) NOT NULL, 
	trial BIGINT NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	bytes BIGINT NOT NULL, 
	CONSTRAINT pk_trial_files PRIMARY KEY (job_id, trial, name), 
	CONSTRAINT fk_trial_files_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
CREATE TABLE trials (
	job_id VARCHAR(40) NOT NULL, 
	number BIGINT NOT NULL, 
	recipe_override JSON NOT NULL, 
	recipe JSON NOT NULL, 
	reason TEXT NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	parent BIGINT, 
	began_s FLOAT, 
	seconds FLOAT, 
	figures JSON, 
	error JSON, 
	CONSTRAINT pk_trials PRIMARY KEY (job_id, number), 
	CONSTRAINT fk_trials_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
CREATE TABLE upload_chunks (
	upload_id VARCHAR(40) NOT NULL, 
	"offset" BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	"key" VARCHAR(120) NOT NULL, 
	CONSTRAINT pk_upload_chunks PRIMARY KEY (upload_id, "offset"), 
	CONSTRAINT fk_upload_chunks_upload_id FOREIGN KEY(upload_id) REFERENCES uploads (id), 
	CONSTRAINT uq_upload_chunks_key UNIQUE ("key")
);
CREATE TABLE uploads (
	id VARCHAR(40) NOT NULL, 
	owner_id VARCHAR(40) NOT NULL, 
	length BIGINT NOT NULL, 
	"offset" BIGINT NOT NULL, 
	metadata TEXT, 
	sha256 VARCHAR(64), 
	fence BIGINT NOT NULL, 
	held_until FLOAT, 
	expires_at FLOAT NOT NULL, 
	created_at FLOAT NOT NULL, 
	CONSTRAINT pk_uploads PRIMARY KEY (id), 
	CONSTRAINT fk_uploads_owner_id FOREIGN KEY(owner_id) REFERENCES owners (id)
);
CREATE TABLE versions (
	id VARCHAR(40) NOT NULL, 
	model_id VARCHAR(40) NOT NULL, 
	number BIGINT NOT NULL, 
	parent BIGINT, 
	task_number BIGINT, 
	job_id VARCHAR(40), 
	status VARCHAR(12) NOT NULL, 
	gate JSON NOT NULL, 
	manifest JSON NOT NULL, 
	bytes BIGINT NOT NULL, 
	bytes_new BIGINT NOT NULL, 
	created_at FLOAT NOT NULL, 
	warnings JSON DEFAULT '[]' NOT NULL, 
	note TEXT, 
	CONSTRAINT pk_versions PRIMARY KEY (id), 
	CONSTRAINT uq_versions_model_id_number UNIQUE (model_id, number), 
	CONSTRAINT fk_versions_model_id FOREIGN KEY(model_id) REFERENCES models (id), 
	CONSTRAINT uq_versions_job_id UNIQUE (job_id), 
	CONSTRAINT fk_versions_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
INSERT INTO "versions" VALUES('ver_01m8kqxped6dkgjxymnnycd23y','mdl_01m8kqxpdg2hvv47ndwvtjxmax',0,NULL,NULL,NULL,'published','{"passed": true, "checks": []}','{"format": 1, "model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "name": "edited", "version": 0, "parent": null, "task": null, "tasks": [], "scenario": "class", "architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 8, "channels": 1, "decoding": 2}, "normalise": null, "classes": [], "heads": [], "seed": 0, "parts": [], "init": {"kind": "random", "seed": 0}}',0,0,1.79595895440101170539e+09,'[]',NULL);
INSERT INTO "versions" VALUES('ver_01m8kqxr98cybvjdaexcgccb6y','mdl_01m8kqxpdg2hvv47ndwvtjxmax',1,0,1,'job_01m8kqxpkah230mmpw18rgbk45','published','{"passed": true, "checks": [{"name": "lost_tasks", "limit": 0, "value": 0, "passed": true, "tasks": [], "classes": []}, {"name": "parent_rolled_back", "limit": 0, "value": 0, "passed": true}]}','{"format": 1, "model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "name": "edited", "version": 1, "parent": 0, "task": 1, "tasks": [1], "scenario": "class", "architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 8, "channels": 1, "decoding": 2}, "normalise": {"mean": [0.5], "std": [0.25]}, "classes": ["0", "1"], "heads": [], "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "method": {"hyper": {"adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "name": "analytic", "predicts_with": ["own", "projection"], "state": {"own": {"auto": {"accuracy": {"lda": 1.0, "ridge": 1.0}, "head": "lda", "images": 48, "standard_error": 0.0}, "ridge": {"strength": 1.2636208824189814}}}}, "datasets": {"train": "1db7377fd0fddaafba4f920bc4a0863ddff0f1a1be824948bebc1fa2fffc54c3", "held_out": "603f27abcd86a6ba64867a25474d748653dacaba87ce05599ba6dcdfe5dd543e"}, "seed": 0, "threads": 1, "code_version": "c191db8500b0b786d6fb807d3e63e70229e1068484945b1971663da50a794512", "environment": {"cpu_capability": "AVX2", "device": "cpu", "threads": 1, "torch": "2.13.0+cpu", "precision": "float32", "deterministic": true, "nondeterministic": []}, "parts": [{"name": "backbone.1", "type": "backbone", "sha256": "5b19b309115affe2a0d2ed4541cd7b5a4e652dbe94362d596f89b856551c9749", "bytes": 4320}, {"name": "head", "type": "head", "sha256": "39c32cf002cfee09f254c206d3678d660cd087e27017a257a05c3fc60be2ade6", "bytes": 280}, {"name": "statistics.1", "type": "statistics", "sha256": "4ee274faa5aa5a707ed3988b33350baa8d91243dfa7790b92f3a9d6f6210372c", "bytes": 1640}, {"name": "features.1", "type": "features", "sha256": "eb450ddd06d7cd4d23a796cdcf214a340bd6c0c37d2be4ca77e615c6a2f81830", "bytes": 4440}, {"name": "projection", "type": "projection", "sha256": "716e14fb8e5cd75c1faf0b4e709deb8943da3fd4aa2d8f0db963c1f4afaa1637", "bytes": 1104}, {"name": "own", "type": "own", "sha256": "153f6929cb4f4dd66250fa4f7820cf939d4001153bcdcc5c38e41d2b3ea0f794", "bytes": 264}], "update_norm": null, "drift": null, "changes": null, "knn_probe": null, "adp": null, "forecast": null, "rollback": null, "baseline_ncm": null, "baseline_lda": null, "baseline_later": null, "calibration": null, "trainable": 34, "parameters": 1074, "steps": 0, "images": 0, "init": {"kind": "random", "seed": 0}, "temperature": {"value": 6.481169026295562, "source": "left-out", "images": 48}}',12048,12048,1.79595895632298898692e+09,'[]',NULL);
INSERT INTO "versions" VALUES('ver_01m8kqxs4j5fvw92q09cxecb6v','mdl_01m8kqxpdg2hvv47ndwvtjxmax',2,1,2,'job_01m8kqxpvmp9bbk3c6a8353vkq','published','{"passed": true, "checks": [{"name": "lost_tasks", "limit": 0, "value": 0, "passed": true, "tasks": [], "classes": []}, {"name": "parent_rolled_back", "limit": 1, "value": 1, "passed": true}]}','{"format": 1, "model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "name": "edited", "version": 2, "parent": 1, "task": 2, "tasks": [1, 2], "scenario": "class", "architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 8, "channels": 1, "decoding": 2}, "normalise": {"mean": [0.5], "std": [0.25]}, "classes": ["0", "1", "2", "3"], "heads": [], "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "method": {"hyper": {"adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "name": "analytic", "predicts_with": ["own", "projection"], "state": {"own": {"auto": {"accuracy": {"lda": 0.90625, "ridge": 0.9479166666666667}, "head": "ridge", "images": 96, "standard_error": 0.020142532570595187}, "ridge": {"strength": 1.9931306851793573}}}}, "datasets": {"train": "f2976d65e0e1bc6c065e3ee5c690e22cc97cfbd5f05747d7198c392d1d255f62", "held_out": "89af9e488379fd32587445d5cb89c76b2cc4b420ed18a463c2232820d7d08be5"}, "seed": 0, "threads": 1, "code_version": "c191db8500b0b786d6fb807d3e63e70229e1068484945b1971663da50a794512", "environment": {"cpu_capability": "AVX2", "device": "cpu", "threads": 1, "torch": "2.13.0+cpu", "precision": "float32", "deterministic": true, "nondeterministic": []}, "parts": [{"name": "backbone.1", "type": "backbone", "sha256": "5b19b309115affe2a0d2ed4541cd7b5a4e652dbe94362d596f89b856551c9749", "bytes": 4320}, {"name": "head", "type": "head", "sha256": "46869d45f395b44f16ad45c6fd3389c3c9b818c4383a07a7079646938d310d1f", "bytes": 416}, {"name": "statistics.2", "type": "statistics", "sha256": "d5f795e8af1deca02d3cfdc559235d87716fef23382006eb9bc570e32a326541", "bytes": 1640}, {"name": "features.2", "type": "features", "sha256": "6e1c2c4a5e6fcf44bff852ce969cdb83fbed482e7ea7f73316ed74dc9785df41", "bytes": 4440}, {"name": "projection", "type": "projection", "sha256": "716e14fb8e5cd75c1faf0b4e709deb8943da3fd4aa2d8f0db963c1f4afaa1637", "bytes": 1104}, {"name": "own", "type": "own", "sha256": "7cbe17bc1682e089293e0fef2568ff3cfccf3be7a8c2a64417e5d34a5257b56f", "bytes": 408}], "update_norm": null, "drift": null, "changes": null, "knn_probe": null, "adp": null, "forecast": null, "rollback": null, "baseline_ncm": null, "baseline_lda": null, "baseline_later": null, "calibration": null, "trainable": 68, "parameters": 1108, "steps": 0, "images": 0, "init": {"kind": "random", "seed": 0}, "temperature": {"value": 0.20437846753280184, "source": "held-out", "images": 32}}',12328,6904,1.79595895719701337811e+09,'[]',NULL);
INSERT INTO "versions" VALUES('ver_01m8kqxt62qhhd4b7zw4881zn3','mdl_01m8kqxpdg2hvv47ndwvtjxmax',3,2,3,'job_01m8kqxpzgq1qdydjp6pk6g6cq','published','{"passed": true, "checks": [{"name": "lost_tasks", "limit": 0, "value": 0, "passed": true, "tasks": [], "classes": []}, {"name": "parent_rolled_back", "limit": 2, "value": 2, "passed": true}]}','{"format": 1, "model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "name": "edited", "version": 3, "parent": 2, "task": 3, "tasks": [1, 2, 3], "scenario": "class", "architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 8, "channels": 1, "decoding": 2}, "normalise": {"mean": [0.5], "std": [0.25]}, "classes": ["0", "1", "2", "3", "4", "5"], "heads": [], "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "method": {"hyper": {"adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "name": "analytic", "predicts_with": ["own", "projection"], "state": {"own": {"auto": {"accuracy": {"lda": 0.8402777777777778, "ridge": 0.8194444444444445}, "head": "lda", "images": 144, "standard_error": 0.022103016628250236}, "ridge": {"strength": 2.8110122543841842}}}}, "datasets": {"train": "94292d98c6e1119143e1418252311e0e54acfb50544615ec1ede9b3ef2bf7a10", "held_out": "1ba9a0abb4951463cc54e88bdc986189f917f28bd17466ad1d124d6d16453eb7"}, "seed": 0, "threads": 1, "code_version": "c191db8500b0b786d6fb807d3e63e70229e1068484945b1971663da50a794512", "environment": {"cpu_capability": "AVX2", "device": "cpu", "threads": 1, "torch": "2.13.0+cpu", "precision": "float32", "deterministic": true, "nondeterministic": []}, "parts": [{"name": "backbone.1", "type": "backbone", "sha256": "5b19b309115affe2a0d2ed4541cd7b5a4e652dbe94362d596f89b856551c9749", "bytes": 4320}, {"name": "head", "type": "head", "sha256": "e1dd37a5c1da24722afb3deca3b0e611a31e8738d6b5e75e8a534d7e3d7156c5", "bytes": 552}, {"name": "statistics.3", "type": "statistics", "sha256": "fa3de3a840ea961e4b4a01682f2fb31c9ec3c195b4e133b0ac284bd3774b5c73", "bytes": 1640}, {"name": "features.3", "type": "features", "sha256": "f42dc752762b2d24a3f5b118d5130758bb69ed9ae09dd37f8e248e3b3dca960b", "bytes": 4440}, {"name": "projection", "type": "projection", "sha256": "716e14fb8e5cd75c1faf0b4e709deb8943da3fd4aa2d8f0db963c1f4afaa1637", "bytes": 1104}, {"name": "own", "type": "own", "sha256": "0d84c9650f88f5fa6be78c460ac44bc9a234f08de3ecdfba2809c66b82eea09e", "bytes": 544}], "update_norm": null, "drift": null, "changes": null, "knn_probe": null, "adp": null, "forecast": null, "rollback": null, "baseline_ncm": null, "baseline_lda": null, "baseline_later": null, "calibration": null, "trainable": 102, "parameters": 1142, "steps": 0, "images": 0, "init": {"kind": "random", "seed": 0}, "temperature": {"value": 3.0288547383309647, "source": "held-out", "images": 48}}',12600,7176,1.79595895826898527148e+09,'[]',NULL);
INSERT INTO "versions" VALUES('ver_01m8kqxv4p7t6s3e1pdz7khsjn','mdl_01m8kqxpdg2hvv47ndwvtjxmax',4,3,2,'job_01m8kqxtgvqfs0qkg575pgnfh7','published','{"passed": true, "checks": [{"name": "lost_tasks", "limit": 0, "value": 0, "passed": true, "tasks": [], "classes": []}, {"name": "parent_rolled_back", "limit": 3, "value": 3, "passed": true}]}','{"format": 1, "model": "mdl_01m8kqxpdg2hvv47ndwvtjxmax", "name": "edited", "version": 4, "parent": 3, "task": 2, "tasks": [1, 2, 3], "scenario": "class", "architecture": {"name": "mlp", "hidden": [16]}, "image": {"size": 8, "channels": 1, "decoding": 2}, "normalise": {"mean": [0.5], "std": [0.25]}, "classes": ["0", "1", "3", "4", "5"], "heads": [], "recipe": {"anytime": false, "augment": "auto", "balanced_batches": true, "batch_size": 32, "data_report": "warn", "depth": 1, "deterministic": true, "epochs": 10, "features": "computed", "head": {"init": "zero"}, "merge": null, "method": {"name": "analytic", "adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "optimizer": {"carry_state": false, "clip": 2.0, "dampening": 0.0, "head_lr": null, "lr": 0.03, "momentum": 0.9, "name": "sgd", "olor": null, "schedule": "cosine", "warmup_steps": 0, "weight_decay": 0.0}, "precision": "auto", "preset": "from-random", "rebalance": null, "resources": {"device": "any", "gpus": 1, "resume": "same"}, "sampler": "shuffled", "seed": 0, "shards": 1, "train_ce": "auto", "validation": 0.0}, "method": {"hyper": {"adapt": null, "balanced": true, "head": "auto", "keep": "features", "offsets": true, "prior": "uniform", "projection": 16, "shrinkage": null, "strength": null}, "name": "analytic", "predicts_with": ["own", "projection"], "state": {"own": {"auto": {"accuracy": {"lda": 0.8583333333333334, "ridge": 0.7791666666666667}, "head": "lda", "images": 144, "standard_error": 0.026137216782605582}, "ridge": {"strength": 2.9140470036228145}}}}, "datasets": {"train": "f2976d65e0e1bc6c065e3ee5c690e22cc97cfbd5f05747d7198c392d1d255f62", "held_out": "89af9e488379fd32587445d5cb89c76b2cc4b420ed18a463c2232820d7d08be5"}, "seed": 0, "threads": 1, "code_version": "c191db8500b0b786d6fb807d3e63e70229e1068484945b1971663da50a794512", "environment": {"cpu_capability": "AVX2", "device": "cpu", "threads": 1, "torch": "2.13.0+cpu", "precision": "float32", "deterministic": true, "nondeterministic": []}, "parts": [{"name": "backbone.1", "type": "backbone", "sha256": "5b19b309115affe2a0d2ed4541cd7b5a4e652dbe94362d596f89b856551c9749", "bytes": 4320}, {"name": "head", "type": "head", "sha256": "3e318fdab014deb030c43a704e9863aa3e2cfd667b77a7bb55ac937bb4db948a", "bytes": 484}, {"name": "statistics.2", "type": "statistics", "sha256": "b144cc5cdaba457660e3fe2fee654fda8725564f88ae7d140ab657d8f372eae9", "bytes": 1640}, {"name": "features.2", "type": "features", "sha256": "94bf745e1fb9783edd0610fd6940d1c04348b8d0ef1d14c994bf8b5e61bfd0e6", "bytes": 4440}, {"name": "projection", "type": "projection", "sha256": "716e14fb8e5cd75c1faf0b4e709deb8943da3fd4aa2d8f0db963c1f4afaa1637", "bytes": 1104}, {"name": "own", "type": "own", "sha256": "d90263b4b267c3c6c7ff4a06fa44344a78c91cc6842633da99485dfe1378f683", "bytes": 476}, {"name": "features.1", "type": "features", "sha256": "eb450ddd06d7cd4d23a796cdcf214a340bd6c0c37d2be4ca77e615c6a2f81830", "bytes": 4440}, {"name": "features.3", "type": "features", "sha256": "c6825119be55e819bd0ca6bf6847f16fce7b8d7cbedbc395e1f6ff97c4b1287f", "bytes": 4440}, {"name": "statistics.1", "type": "statistics", "sha256": "4ee274faa5aa5a707ed3988b33350baa8d91243dfa7790b92f3a9d6f6210372c", "bytes": 1640}, {"name": "statistics.3", "type": "statistics", "sha256": "163c1802c36dfa0c5041938791d6fb89154e8d7f21ae26842e6659b05343d563", "bytes": 1640}], "update_norm": null, "drift": null, "changes": null, "knn_probe": null, "adp": null, "forecast": null, "rollback": null, "baseline_ncm": null, "baseline_lda": null, "baseline_later": null, "calibration": null, "trainable": 85, "parameters": 1125, "steps": 0, "images": 0, "init": {"kind": "random", "seed": 0}, "temperature": {"value": 2.392836392599142, "source": "held-out", "images": 48}}',24624,13120,1.79595895922798204423e+09,'[]',NULL);
CREATE TABLE webhooks (
	id VARCHAR(40) NOT NULL, 
	owner_id VARCHAR(40) NOT NULL, 
	url TEXT NOT NULL, 
	events JSON NOT NULL, 
	model_id VARCHAR(40), 
	generation BIGINT NOT NULL, 
	secret_sha256 VARCHAR(64) NOT NULL, 
	previous_until FLOAT, 
	disabled_at FLOAT, 
	disabled_because VARCHAR(300), 
	failing_since FLOAT, 
	dropped BIGINT NOT NULL, 
	due_at FLOAT, 
	lease_until FLOAT, 
	fence BIGINT NOT NULL, 
	served_at FLOAT, 
	last_s FLOAT, 
	created_at FLOAT NOT NULL, 
	format VARCHAR(10) DEFAULT 'standard' NOT NULL, 
	CONSTRAINT pk_webhooks PRIMARY KEY (id), 
	CONSTRAINT fk_webhooks_owner_id FOREIGN KEY(owner_id) REFERENCES owners (id), 
	CONSTRAINT fk_webhooks_model_id FOREIGN KEY(model_id) REFERENCES models (id)
);
CREATE TABLE weights (
	repository VARCHAR(200) NOT NULL, 
	revision VARCHAR(64), 
	sha256 VARCHAR(64), 
	bytes BIGINT, 
	job_id VARCHAR(40), 
	CONSTRAINT pk_weights PRIMARY KEY (repository)
);
CREATE TABLE workers (
	worker VARCHAR(120) NOT NULL, 
	device VARCHAR(4) NOT NULL, 
	gpus BIGINT NOT NULL, 
	problem TEXT, 
	seen_at FLOAT NOT NULL, 
	answers_since FLOAT, 
	CONSTRAINT pk_workers PRIMARY KEY (worker)
);
INSERT INTO "workers" VALUES('vm-27365-f93853328990ce54','cpu',0,NULL,1.79595895311998867988e+09,1795958952.85099);
CREATE INDEX ix_keys_owner_id ON keys (owner_id);
CREATE INDEX ix_sessions_key_id ON sessions (key_id);
CREATE INDEX ix_sessions_expires_at ON sessions (expires_at);
CREATE INDEX ix_idempotency_created_at ON idempotency (created_at);
CREATE INDEX ix_audit_owner_id ON audit (owner_id);
CREATE INDEX ix_audit_model_id_id ON audit (model_id, id);
CREATE INDEX ix_audit_action_id ON audit (action, id);
CREATE INDEX ix_audit_at_id ON audit (at, id);
CREATE INDEX ix_bases_owner_id ON bases (owner_id);
CREATE INDEX ix_bases_sha256 ON bases (sha256);
CREATE UNIQUE INDEX uq_models_owner_id_name ON models (owner_id, name) WHERE deleted_at IS NULL;
CREATE INDEX ix_models_owner_id_id ON models (owner_id, id);
CREATE INDEX ix_models_name ON models (name, id) WHERE deleted_at IS NULL;
CREATE INDEX ix_models_base_job ON models (id) WHERE base_job IS NOT NULL;
CREATE INDEX ix_models_rebased_from ON models (rebased_from, id) WHERE rebased_from IS NOT NULL;
CREATE INDEX ix_models_totals_sha256 ON models (totals_sha256) WHERE totals_sha256 IS NOT NULL;
CREATE INDEX ix_alias_moves_model_id_alias_id ON alias_moves (model_id, alias, id);
CREATE INDEX ix_predict_keys_model_id ON predict_keys (model_id);
CREATE INDEX ix_uploads_owner_id ON uploads (owner_id);
CREATE INDEX ix_uploads_expires_at ON uploads (expires_at);
CREATE INDEX ix_tasks_model_id_sha256 ON tasks (model_id, sha256);
CREATE INDEX ix_tasks_archive_key ON tasks (archive_key) WHERE archive_key IS NOT NULL;
CREATE INDEX ix_tasks_train_sha256 ON tasks (train_sha256) WHERE train_sha256 IS NOT NULL AND train_deleted_at IS NULL;
CREATE INDEX ix_tasks_held_out_sha256 ON tasks (held_out_sha256) WHERE held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL;
CREATE INDEX ix_tasks_waiting ON tasks (model_id, bytes) WHERE archive_key IS NOT NULL;
CREATE INDEX ix_tasks_train ON tasks (model_id, n_train) WHERE train_sha256 IS NOT NULL AND train_deleted_at IS NULL;
CREATE INDEX ix_tasks_held_out ON tasks (model_id, n_held_out) WHERE held_out_sha256 IS NOT NULL AND held_out_deleted_at IS NULL;
CREATE INDEX ix_tasks_data_deleted ON tasks (model_id) WHERE data_deleted_at IS NOT NULL;
CREATE INDEX ix_tasks_model_id_standing_number ON tasks (model_id, standing, number);
CREATE INDEX ix_tasks_stops ON tasks (model_id, number) WHERE stops = 1;
CREATE INDEX ix_tasks_train_undated ON tasks (model_id) WHERE train_until IS NULL AND train_sha256 IS NOT NULL AND train_deleted_at IS NULL;
CREATE INDEX ix_tasks_train_until ON tasks (train_until) WHERE train_until IS NOT NULL AND train_sha256 IS NOT NULL AND train_deleted_at IS NULL;
CREATE INDEX ix_tasks_traces_sha256 ON tasks (traces_sha256) WHERE traces_sha256 IS NOT NULL AND held_out_deleted_at IS NULL;
CREATE INDEX ix_tasks_traces ON tasks (model_id, traces_bytes) WHERE traces_sha256 IS NOT NULL AND held_out_deleted_at IS NULL;
CREATE INDEX ix_tasks_features_sha256 ON tasks (features_sha256) WHERE features_sha256 IS NOT NULL AND held_out_deleted_at IS NULL;
CREATE INDEX ix_tasks_features ON tasks (model_id, features_bytes) WHERE features_sha256 IS NOT NULL AND held_out_deleted_at IS NULL;
CREATE UNIQUE INDEX uq_tasks_model_id_content ON tasks (model_id, content_sha256, content_turn);
CREATE INDEX ix_jobs_model_id_id ON jobs (model_id, id);
CREATE INDEX ix_jobs_owner_id_id ON jobs (owner_id, id);
CREATE INDEX ix_jobs_retry_of ON jobs (retry_of);
CREATE INDEX ix_jobs_task_id ON jobs (task_id);
CREATE INDEX ix_jobs_owner_id_state_id ON jobs (owner_id, state, id);
CREATE INDEX ix_jobs_state_id ON jobs (state, id);
CREATE INDEX ix_jobs_snapshot ON jobs (id) WHERE snapshot IS NOT NULL;
CREATE INDEX ix_jobs_anytime ON jobs (id) WHERE anytime IS NOT NULL;
CREATE INDEX ix_jobs_model_id_state_id ON jobs (model_id, state, id);
CREATE INDEX ix_jobs_state_created_at_id ON jobs (state, created_at, id);
CREATE UNIQUE INDEX uq_jobs_model_id_leased ON jobs (model_id) WHERE state IN ('cancelling', 'pausing', 'running', 'validating') AND place IS NOT NULL;
CREATE INDEX ix_jobs_owner_id_state_kind_id ON jobs (owner_id, state, kind, id);
CREATE INDEX ix_jobs_owner_id_kind_id ON jobs (owner_id, kind, id);
CREATE INDEX ix_jobs_kind_id ON jobs (kind, id);
CREATE INDEX ix_jobs_archive_key ON jobs (archive_key) WHERE archive_key IS NOT NULL;
CREATE INDEX ix_jobs_archives ON jobs (model_id, archive_bytes) WHERE archive_key IS NOT NULL;
CREATE INDEX ix_events_at ON events (at);
CREATE INDEX ix_events_job_id_id ON events (job_id, id);
CREATE INDEX ix_owner_events_at ON owner_events (at);
CREATE INDEX ix_owner_events_owner_id_type_id ON owner_events (owner_id, type, id);
CREATE INDEX ix_owner_events_model_id_type_id ON owner_events (model_id, type, id);
CREATE INDEX ix_owner_events_type_id ON owner_events (type, id);
CREATE INDEX ix_workers_device_seen_at ON workers (device, seen_at);
CREATE INDEX ix_versions_status ON versions (status);
CREATE INDEX ix_versions_model_id_number_id ON versions (model_id, number, id);
CREATE INDEX ix_versions_model_id_task_number ON versions (model_id, task_number);
CREATE INDEX ix_parts_sha256 ON parts (sha256);
CREATE INDEX ix_parts_kept ON parts (version_id, deleted_at, sha256, bytes);
CREATE INDEX ix_results_first ON results (model_id, version, task, correct, total) WHERE best IS NULL;
CREATE INDEX ix_results_answers ON results (answers) WHERE answers IS NOT NULL;
CREATE INDEX ix_results_answers_of_a_task ON results (model_id, task, answers, answers_bytes) WHERE answers IS NOT NULL;
CREATE INDEX ix_measurements_all_tasks ON measurements (model_id, name, version) WHERE task = 0;
CREATE INDEX ix_exports_created_at ON exports (created_at);
CREATE INDEX ix_exports_sha256 ON exports (sha256);
CREATE INDEX ix_webhooks_owner_id ON webhooks (owner_id);
CREATE INDEX ix_webhooks_due ON webhooks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ix_deliveries_created_at ON deliveries (created_at);
CREATE INDEX ix_deliveries_webhook_id_number ON deliveries (webhook_id, number);
CREATE INDEX ix_deliveries_pending ON deliveries (webhook_id, number) WHERE state = 'pending';
CREATE INDEX ix_deliveries_owner_pending ON deliveries (owner_id) WHERE state = 'pending';
CREATE INDEX ix_edited_parts_sha256 ON edited_parts (sha256);
CREATE INDEX ix_edited_parts_task_id ON edited_parts (task_id);
CREATE INDEX ix_edited_parts_until ON edited_parts (until);
CREATE INDEX ix_tasks_selection_sha256 ON tasks (selection_sha256) WHERE selection_sha256 IS NOT NULL AND held_out_deleted_at IS NULL;
CREATE INDEX ix_tasks_selection ON tasks (model_id, n_selection) WHERE selection_sha256 IS NOT NULL AND held_out_deleted_at IS NULL;
CREATE INDEX ix_jobs_choose_until ON jobs (choose_until) WHERE choose_until IS NOT NULL;
CREATE INDEX ix_jobs_unfinished ON jobs (model_id, task_number) WHERE state IN ('cancelling', 'choosing', 'paused', 'pausing', 'queued', 'running', 'validating');
CREATE INDEX ix_trial_files_sha256 ON trial_files (sha256);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',9);
INSERT INTO "sqlite_sequence" VALUES('alias_moves',10);
INSERT INTO "sqlite_sequence" VALUES('owner_events',30);
INSERT INTO "sqlite_sequence" VALUES('events',146);
COMMIT;
