BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v2.6.0.a');
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'prices');
INSERT INTO "studies" VALUES(2,'front');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MINIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MINIMIZE',2,0);
INSERT INTO "study_directions" VALUES(3,'MAXIMIZE',2,1);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_intermediate_values" VALUES(1,1,0,1.0717826497151388132e+00);
INSERT INTO "trial_intermediate_values" VALUES(2,1,1,5.71782649715138702184e-01);
INSERT INTO "trial_intermediate_values" VALUES(3,1,2,0.405115983048472);
INSERT INTO "trial_intermediate_values" VALUES(4,1,3,3.21782649715138702184e-01);
INSERT INTO "trial_intermediate_values" VALUES(5,1,4,2.71782649715138713286e-01);
INSERT INTO "trial_intermediate_values" VALUES(6,2,0,1.02027559267640266504e+00);
INSERT INTO "trial_intermediate_values" VALUES(7,2,1,5.20275592676402776071e-01);
INSERT INTO "trial_intermediate_values" VALUES(8,2,2,3.536089260097360909e-01);
INSERT INTO "trial_intermediate_values" VALUES(9,2,3,2.70275592676402776071e-01);
INSERT INTO "trial_intermediate_values" VALUES(10,2,4,2.20275592676402731662e-01);
INSERT INTO "trial_intermediate_values" VALUES(11,3,0,1.05154989551913780054e+00);
INSERT INTO "trial_intermediate_values" VALUES(12,3,1,5.51549895519137800548e-01);
INSERT INTO "trial_intermediate_values" VALUES(13,3,2,0.384883228852471);
INSERT INTO "trial_intermediate_values" VALUES(14,3,3,3.01549895519137689525e-01);
INSERT INTO "trial_intermediate_values" VALUES(15,3,4,2.51549895519137700627e-01);
INSERT INTO "trial_intermediate_values" VALUES(16,4,0,1.08041054120168600327e+00);
INSERT INTO "trial_intermediate_values" VALUES(17,4,1,5.80410541201685892254e-01);
INSERT INTO "trial_intermediate_values" VALUES(18,4,2,4.13743874535019207083e-01);
INSERT INTO "trial_intermediate_values" VALUES(19,4,3,3.30410541201685892254e-01);
INSERT INTO "trial_intermediate_values" VALUES(20,4,4,2.80410541201685903356e-01);
INSERT INTO "trial_intermediate_values" VALUES(21,5,0,1.05178613551976263273e+00);
INSERT INTO "trial_intermediate_values" VALUES(22,5,1,5.51786135519762632739e-01);
INSERT INTO "trial_intermediate_values" VALUES(23,5,2,3.85119468853095892058e-01);
INSERT INTO "trial_intermediate_values" VALUES(24,6,0,1.10524839093617099905e+00);
INSERT INTO "trial_intermediate_values" VALUES(25,6,1,0.605248390936171);
INSERT INTO "trial_intermediate_values" VALUES(26,6,2,4.38581724269504369395e-01);
INSERT INTO "trial_intermediate_values" VALUES(27,6,3,3.55248390936171054566e-01);
INSERT INTO "trial_intermediate_values" VALUES(28,6,4,3.05248390936171065668e-01);
INSERT INTO "trial_intermediate_values" VALUES(29,7,0,1.12257625486011392013e+00);
INSERT INTO "trial_intermediate_values" VALUES(30,7,1,6.22576254860113809108e-01);
INSERT INTO "trial_intermediate_values" VALUES(31,7,2,4.55909588193447179449e-01);
INSERT INTO "trial_intermediate_values" VALUES(32,7,3,3.72576254860113809108e-01);
INSERT INTO "trial_intermediate_values" VALUES(33,7,4,3.22576254860113875722e-01);
INSERT INTO "trial_intermediate_values" VALUES(34,9,0,1.06397645301170018505e+00);
INSERT INTO "trial_intermediate_values" VALUES(35,9,1,5.63976453011700074036e-01);
INSERT INTO "trial_intermediate_values" VALUES(36,9,2,3.97309786345033333354e-01);
INSERT INTO "trial_intermediate_values" VALUES(37,9,3,0.3139764530117);
INSERT INTO "trial_intermediate_values" VALUES(38,9,4,2.63976453011700029627e-01);
INSERT INTO "trial_intermediate_values" VALUES(39,10,0,1.0519063419751342181e+00);
INSERT INTO "trial_intermediate_values" VALUES(40,10,1,5.51906341975134218102e-01);
INSERT INTO "trial_intermediate_values" VALUES(41,10,2,3.85239675308467588443e-01);
INSERT INTO "trial_intermediate_values" VALUES(42,10,3,3.01906341975134218102e-01);
INSERT INTO "trial_intermediate_values" VALUES(43,10,4,2.51906341975134229205e-01);
INSERT INTO "trial_intermediate_values" VALUES(44,11,0,1.0475588861587736833e+00);
INSERT INTO "trial_intermediate_values" VALUES(45,11,1,5.47558886158773794328e-01);
INSERT INTO "trial_intermediate_values" VALUES(46,11,2,3.80892219492107053646e-01);
INSERT INTO "trial_intermediate_values" VALUES(47,11,3,2.97558886158773794328e-01);
INSERT INTO "trial_intermediate_values" VALUES(48,11,4,2.47558886158773777674e-01);
INSERT INTO "trial_intermediate_values" VALUES(49,12,0,1.09318467494773385872e+00);
INSERT INTO "trial_intermediate_values" VALUES(50,12,1,5.93184674947733858729e-01);
INSERT INTO "trial_intermediate_values" VALUES(51,12,2,4.26518008281067118048e-01);
INSERT INTO "trial_intermediate_values" VALUES(52,12,3,3.43184674947733803218e-01);
INSERT INTO "trial_intermediate_values" VALUES(53,12,4,2.93184674947733869831e-01);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'lr',1.78264971513869487258e-03,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(2,1,'depth',7.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(3,1,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(4,2,'lr',2.75592676402737707733e-04,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(5,2,'depth',2.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(6,2,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(7,3,'lr',1.54989551913771428891e-03,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(8,3,'depth',5.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(9,3,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(10,4,'lr',4.1054120168588934198e-04,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(11,4,'depth',8.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(12,4,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(13,5,'lr',1.78613551976259700426e-03,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(14,5,'depth',5.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(15,5,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(16,6,'lr',2.52483909361710147367e-02,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(17,6,'depth',8.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(18,6,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(19,7,'lr',4.25762548601138213211e-02,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(20,7,'depth',8.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(21,7,'optimizer',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(22,7,'momentum',0.1,'{"name": "DiscreteUniformDistribution", "attributes": {"low": 0.0, "high": 0.9, "q": 0.1}}');
INSERT INTO "trial_params" VALUES(23,8,'lr',4.30950620426108418903e-02,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(24,8,'depth',2.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(25,8,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(26,9,'lr',3.97645301170004416418e-03,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(27,9,'depth',6.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(28,9,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(29,10,'lr',3.1906341975134228095e-02,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(30,10,'depth',2.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(31,10,'optimizer',1.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(32,11,'lr',1.75588861587737572744e-02,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(33,11,'depth',3.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(34,11,'optimizer',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(35,11,'momentum',0.4,'{"name": "DiscreteUniformDistribution", "attributes": {"low": 0.0, "high": 0.9, "q": 0.1}}');
INSERT INTO "trial_params" VALUES(36,12,'lr',5.31846749477338301415e-02,'{"name": "LogUniformDistribution", "attributes": {"low": 0.0001, "high": 0.1}}');
INSERT INTO "trial_params" VALUES(37,12,'depth',4.0,'{"name": "IntUniformDistribution", "attributes": {"low": 2, "high": 8, "step": 1}}');
INSERT INTO "trial_params" VALUES(38,12,'optimizer',0.0,'{"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", "adam"]}}');
INSERT INTO "trial_params" VALUES(39,12,'momentum',0.0,'{"name": "DiscreteUniformDistribution", "attributes": {"low": 0.0, "high": 0.9, "q": 0.1}}');
INSERT INTO "trial_params" VALUES(40,15,'x',-1.28010195715992480813e-01,'{"name": "UniformDistribution", "attributes": {"low": -1.0, "high": 1.0}}');
INSERT INTO "trial_params" VALUES(41,16,'x',-9.48147536344217334303e-01,'{"name": "UniformDistribution", "attributes": {"low": -1.0, "high": 1.0}}');
INSERT INTO "trial_params" VALUES(42,17,'x',9.93249557574182873054e-02,'{"name": "UniformDistribution", "attributes": {"low": -1.0, "high": 1.0}}');
INSERT INTO "trial_params" VALUES(43,18,'x',-1.29355214763446246806e-01,'{"name": "UniformDistribution", "attributes": {"low": -1.0, "high": 1.0}}');
INSERT INTO "trial_params" VALUES(44,19,'x',-1.59264395825021942698e-01,'{"name": "UniformDistribution", "attributes": {"low": -1.0, "high": 1.0}}');
INSERT INTO "trial_params" VALUES(45,20,'x',-3.39330357992251752108e-01,'{"name": "UniformDistribution", "attributes": {"low": -1.0, "high": 1.0}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,13,'fixed_params','{"lr": 0.01, "depth": 3}');
INSERT INTO "trial_system_attributes" VALUES(2,14,'fixed_params','{"lr": 0.02}');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'host','"node-0"');
INSERT INTO "trial_user_attributes" VALUES(2,2,'host','"node-1"');
INSERT INTO "trial_user_attributes" VALUES(3,3,'host','"node-0"');
INSERT INTO "trial_user_attributes" VALUES(4,4,'host','"node-1"');
INSERT INTO "trial_user_attributes" VALUES(5,5,'host','"node-0"');
INSERT INTO "trial_user_attributes" VALUES(6,6,'host','"node-1"');
INSERT INTO "trial_user_attributes" VALUES(7,7,'host','"node-0"');
INSERT INTO "trial_user_attributes" VALUES(8,8,'host','"node-1"');
INSERT INTO "trial_user_attributes" VALUES(9,9,'host','"node-0"');
INSERT INTO "trial_user_attributes" VALUES(10,10,'host','"node-1"');
INSERT INTO "trial_user_attributes" VALUES(11,11,'host','"node-0"');
INSERT INTO "trial_user_attributes" VALUES(12,12,'host','"node-1"');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,2.71782649715138713286e-01);
INSERT INTO "trial_values" VALUES(2,2,0,2.20275592676402731662e-01);
INSERT INTO "trial_values" VALUES(3,3,0,2.51549895519137700627e-01);
INSERT INTO "trial_values" VALUES(4,4,0,2.80410541201685903356e-01);
INSERT INTO "trial_values" VALUES(5,5,0,3.85119468853095892058e-01);
INSERT INTO "trial_values" VALUES(6,6,0,3.05248390936171065668e-01);
INSERT INTO "trial_values" VALUES(7,7,0,3.22576254860113875722e-01);
INSERT INTO "trial_values" VALUES(8,9,0,2.63976453011700029627e-01);
INSERT INTO "trial_values" VALUES(9,10,0,2.51906341975134229205e-01);
INSERT INTO "trial_values" VALUES(10,11,0,2.47558886158773777674e-01);
INSERT INTO "trial_values" VALUES(11,12,0,2.93184674947733869831e-01);
INSERT INTO "trial_values" VALUES(12,15,0,0.0163866102072467);
INSERT INTO "trial_values" VALUES(13,15,1,-1.28010195715992480813e-01);
INSERT INTO "trial_values" VALUES(14,16,0,0.898983750675609);
INSERT INTO "trial_values" VALUES(15,16,1,-9.48147536344217334303e-01);
INSERT INTO "trial_values" VALUES(16,17,0,0.0098654468362131);
INSERT INTO "trial_values" VALUES(17,17,1,9.93249557574182873054e-02);
INSERT INTO "trial_values" VALUES(18,18,0,1.67327715864973025627e-02);
INSERT INTO "trial_values" VALUES(19,18,1,-1.29355214763446246806e-01);
INSERT INTO "trial_values" VALUES(20,19,0,2.53651477775092663857e-02);
INSERT INTO "trial_values" VALUES(21,19,1,-1.59264395825021942698e-01);
INSERT INTO "trial_values" VALUES(22,20,0,1.15145091855149733772e-01);
INSERT INTO "trial_values" VALUES(23,20,1,-3.39330357992251752108e-01);
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-28 15:24:47.092988','2026-11-28 15:24:47.151272');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-28 15:24:47.164575','2026-11-28 15:24:47.206830');
INSERT INTO "trials" VALUES(3,2,1,'COMPLETE','2026-11-28 15:24:47.214811','2026-11-28 15:24:47.259350');
INSERT INTO "trials" VALUES(4,3,1,'COMPLETE','2026-11-28 15:24:47.268681','2026-11-28 15:24:47.316995');
INSERT INTO "trials" VALUES(5,4,1,'PRUNED','2026-11-28 15:24:47.327010','2026-11-28 15:24:47.370528');
INSERT INTO "trials" VALUES(6,5,1,'COMPLETE','2026-11-28 15:24:47.379542','2026-11-28 15:24:47.425506');
INSERT INTO "trials" VALUES(7,6,1,'COMPLETE','2026-11-28 15:24:47.434806','2026-11-28 15:24:47.486637');
INSERT INTO "trials" VALUES(8,7,1,'FAIL','2026-11-28 15:24:47.495274','2026-11-28 15:24:47.518003');
INSERT INTO "trials" VALUES(9,8,1,'COMPLETE','2026-11-28 15:24:47.524702','2026-11-28 15:24:47.568606');
INSERT INTO "trials" VALUES(10,9,1,'COMPLETE','2026-11-28 15:24:47.577841','2026-11-28 15:24:47.622087');
INSERT INTO "trials" VALUES(11,10,1,'COMPLETE','2026-11-28 15:24:47.628047','2026-11-28 15:24:47.676323');
INSERT INTO "trials" VALUES(12,11,1,'COMPLETE','2026-11-28 15:24:47.684261','2026-11-28 15:24:47.734443');
INSERT INTO "trials" VALUES(13,12,1,'RUNNING','2026-11-28 15:24:47.762771',NULL);
INSERT INTO "trials" VALUES(14,13,1,'WAITING',NULL,NULL);
INSERT INTO "trials" VALUES(15,0,2,'COMPLETE','2026-11-28 15:24:47.813988','2026-11-28 15:24:47.829943');
INSERT INTO "trials" VALUES(16,1,2,'COMPLETE','2026-11-28 15:24:47.841300','2026-11-28 15:24:47.851488');
INSERT INTO "trials" VALUES(17,2,2,'COMPLETE','2026-11-28 15:24:47.858841','2026-11-28 15:24:47.865971');
INSERT INTO "trials" VALUES(18,3,2,'COMPLETE','2026-11-28 15:24:47.874833','2026-11-28 15:24:47.883897');
INSERT INTO "trials" VALUES(19,4,2,'COMPLETE','2026-11-28 15:24:47.892787','2026-11-28 15:24:47.901267');
INSERT INTO "trials" VALUES(20,5,2,'COMPLETE','2026-11-28 15:24:47.916267','2026-11-28 15:24:47.929075');
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'2.10.1');
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
COMMIT;
