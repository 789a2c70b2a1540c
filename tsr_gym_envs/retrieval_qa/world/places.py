"""How cities, countries, waters and mountains are written and asked about; `grammar` reads the lines."""

PLACES = """
kind city
word look hilly|windswept|densely built|leafy|industrial|walled|quiet
word ware cloth|timber|ceramics|machine tools|salt|grain|glass|paper
call {name}
refer the city
open {name} is {a look} city.
open {name} is a city known for its {ware}.
open Once a centre of the {ware} trade, {name} is {a look} city.
alias Until the last reform of place names it was called {alias}.
alias Older maps show {it} as {alias}.
filler The old town survived several fires, and its market hall still sells {ware}.
filler Visitors come mainly for the {look} upper quarter.
filler Trams connect {it} with its suburbs.
filler Its museum of {ware} is open in summer only.

relation city_country country
tell {s} lies in {o}.
tell It is one of the larger cities of {o}.
tell {s} belongs to {o}.
noun the country in which {x} lies
noun the home country of {x}
ask In which country is {x}?
ask Which country does {x} belong to?
find country
same Are {a} and {b} in the same country?
same Do {a} and {b} lie in one country?

relation on_river river
tell {s} stands on {o}.
tell {o} flows through {it}.
tell Its bridges cross {o}.
noun the river that flows through {x}
noun the river on which {x} stands
ask Which river flows through {x}?
ask On which river does {x} stand?
ask Which river passes through {x}?
find river
same Do {a} and {b} stand on the same river?

relation mayor person/politician
tell The mayor is {o}.
tell {o} was elected mayor by a narrow margin.
tell The town hall has been led by {o} for two terms.
noun the mayor of {x}
ask Who is the mayor of {x}?
ask Who was elected mayor of {x}?
find city mayor
inoun the city whose mayor is {x}
iask Of which city is {x} the mayor?
iask Which city elected {x}?
ifind city mayor
back {s} was elected mayor of {o}.

relation population people
tell It has {o}.
tell The last census counted {o}.
tell {s} is home to {o}.
ask What is the population of {x}?
ask How many people did the last census count in {x}?
find inhabitants
less has fewer inhabitants
more has more inhabitants
before Does {a} have fewer inhabitants than {b}?

relation twin_city city
tell {s} is twinned with {o}.
tell Its twin city is {o}.
tell A partnership links {it} with {o}.
noun the twin city of {x}
noun the city twinned with {x}
ask Which city is twinned with {x}?
ask What is the twin city of {x}?
find city twin partnership

relation charter_year year
tell {s} received its charter in {o}.
tell Its charter dates from {o}.
tell Town rights were granted in {o}.
ask In what year did {x} receive its charter?
ask When were town rights granted to {x}?
find charter town rights
less received its charter first
more received its charter later
before Did {a} receive its charter before {b}?

kind country
word land wooded|mountainous|flat|coastal|dry|fertile
word goods timber|copper|wool|tea|machinery|fruit
call {name}
refer the country
open {name} is {a land} country.
open {name} is a country that exports {goods}.
open {A land} country with long winters, {name} is governed by a single chamber.
alias In official documents it is styled {alias}.
filler Railways reached the {land} interior late.
filler The constitution has been amended many times, and {goods} still pays for most imports.
filler Its railway stamps, which show {goods}, are sought by collectors.
filler Schooling is free until the age of sixteen.

relation capital city
tell Its capital is {o}.
tell The seat of government is {o}.
tell Parliament and the courts sit in {o}.
noun the capital of {x}
noun the seat of government of {x}
ask What is the capital of {x}?
ask Which city is the seat of government of {x}?
find country capital

kind river
word flow slow|braided|navigable|fast-flowing|muddy|meandering
article the
call the {name}
refer the river
open The {name} is {a flow} river.
open The {name} is a river with {a flow} lower course.
open Popular with anglers, the {name} is {a flow} river.
alias Boatmen call it the {alias}.
alias On older charts {it} is marked as the {alias}.
filler Several small dams were removed to let fish return.
filler A towpath follows its {flow} middle course.
filler Floods in spring regularly close the valley road.
filler Herons nest along the {flow} stretches of {it}.

relation source mountain
tell {s} rises on {o}.
tell Its source lies on the slopes of {o}.
tell Springs below the summit of {o} feed {it}.
noun the mountain on which {x} rises
noun the mountain where {x} has its source
noun the source mountain of {x}
ask On which mountain does {x} rise?
ask Where is the source of {x}?
find source mountain
same Do {a} and {b} rise on the same mountain?

relation mouth lake
tell {s} empties into {o}.
tell After many bends it reaches {o}.
tell Its mouth is on the shore of {o}.
noun the lake into which {x} empties
noun the lake that {x} flows into
noun the lake at the mouth of {x}
ask Into which lake does {x} empty?
ask Which lake does {x} flow into?
ask What lake lies at the mouth of {x}?
find mouth lake
same Do {a} and {b} empty into the same lake?

relation river_length kilometres
tell {s} is {o} long.
tell Its course measures {o}.
ask How long is {x}?
ask What is the length of {x}?
find long course
less is shorter
more is longer
before Is {a} shorter than {b}?

kind mountain
word shape steep|rounded|glaciated|isolated|twin-peaked|volcanic
call {name}
refer the mountain
open {name} is {a shape} mountain.
open {name} is {a shape} peak that can be seen from far away.
open Often hidden in cloud, {name} is {a shape} mountain.
alias Herders know it as {alias}.
alias Early surveyors called it {alias}.
filler A hut below the ridge offers beds in summer.
filler The {shape} north face was long thought impossible to climb.
filler Rockfall has closed the normal route more than once.
filler From the top of {it} one sees three valleys.

relation mountain_country country
tell {s} stands in {o}.
tell It is one of the best known summits of {o}.
tell The whole of {it} lies within {o}.
noun the country in which {x} stands
noun the country of {x}
ask In which country is {x}?
ask Which country is {x} in?
find country

relation height metres
tell {s} is {o} high.
tell Its summit reaches {o}.
tell Surveyors measured a height of {o}.
ask How high is {x}?
ask What is the height of {x}?
find height high
less is lower
more is higher
before Is {a} lower than {b}?

relation first_climbed_by person/mountaineer
tell {s} was first climbed by {o}.
tell The first ascent was made by {o}.
tell {o} was the first to stand on the summit.
noun the person who first climbed {x}
noun the mountaineer who made the first ascent of {x}
ask Who first climbed {x}?
ask Who made the first ascent of {x}?
find first ascent climbed
inoun the mountain first climbed by {x}
iask Which mountain was first climbed by {x}?
ifind mountain first climbed
back {s} made the first ascent of {o}.

relation ascent_year year
tell The summit was first reached in {o}.
tell The first ascent took place in {o}.
ask In what year was {x} first climbed?
ask When did the first ascent of {x} take place?
ask What is the year of the first ascent of {x}?
find first ascent year
less was climbed first
more was climbed later

kind lake
word water clear|brackish|cold|shallow-shored|reed-fringed|deep-blue
call {name}
refer the lake
open {name} is {a water} lake.
open {name} is {a water} lake surrounded by meadows.
open A favourite of swimmers, {name} is {a water} lake.
alias Fishermen call it {alias}.
alias On military maps {it} bears the name {alias}.
filler A ferry crosses it twice a day in summer.
filler The {water} bays freeze over in hard winters.
filler Its islands are closed to visitors while birds are breeding.
filler Pike and perch are caught in its {water} shallows.

relation lake_country country
tell {s} lies in {o}.
tell Its shores belong entirely to {o}.
noun the country in which {x} lies
noun the country around {x}
ask In which country is {x}?
ask Which country do the shores of {x} belong to?
find country

relation depth metres
tell {s} is up to {o} deep.
tell Its greatest depth is {o}.
tell Divers have measured a depth of {o}.
ask How deep is {x}?
ask What is the greatest depth of {x}?
find depth deep
less is shallower
more is deeper
before Is {a} shallower than {b}?
"""
